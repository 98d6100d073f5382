"""The order in which kernels that wait for each other are launched, on devices that are a model.

A device is three queues of waits, records, kernels and work. Members of overlapping groups begin
collectives in one order and meet in rounds that are over in any order. When no host has anything
left to do, every queue must run to its end: a kernel does when it stands first on all its members.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from gt.worker import device_kernels
from gt.worker.collective_backend import DirectReads
from gt.worker.device_errors import LostError
from gt.worker.device_kernels import DeviceKernels
from gt.worker.pytorch.devices import DeviceRendezvous, Devices

MEMBERS = 4
REGION_BYTES = 64


class Step(NamedTuple):
    """An entry of a queue: a `wait` or `record` of an event, or a `kernel` of a collective."""

    kind: str
    name: bytes


class ModelQueue:
    """A `gt.worker.device.Queue`: what is queued, and how much of it is done."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.steps: list[Step] = []
        self.done_steps = 0

    def run(self, work: Callable[[], None]) -> None:
        work()

    def done(self) -> bytes:
        name = f"{self._name} {len(self.steps)}".encode()
        self.steps.append(Step("record", name))
        return name

    def wait(self, event: bytes) -> None:
        self.steps.append(Step("wait", event))

    @property
    def first(self) -> Step | None:
        return self.steps[self.done_steps] if self.done_steps < len(self.steps) else None


class Model:
    """A `gt.worker.device.Device`."""

    domain = "model"

    def __init__(self, index: int) -> None:
        self.computing = ModelQueue(f"{index} computing")
        self.beside = ModelQueue(f"{index} beside")
        self.meetings = ModelQueue(f"{index} meetings")
        self._exported = 0
        self._index = index
        self.opened: list[bytes] = []
        self.closed: list[int] = []

    def zeros(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(count, dtype=dtype)

    def seen(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int32)

    def export(self, tensor: Tensor) -> tuple[bytes, int]:
        return f"{self._index} {tensor.data_ptr()}".encode(), 0

    def open(self, name: bytes) -> int:
        self.opened.append(name)
        return len(self.opened) - 1

    def address(self, opened: int) -> int:
        return int(self.opened[opened].split()[1])

    def close(self, opened: int) -> None:
        self.closed.append(opened)

    def read(self, opened: int, start: int, stride: int, to: Tensor) -> None:
        to.zero_()

    def computed(self) -> bytes:
        return self.computing.done()

    def wait_to_compute(self, event: bytes) -> None:
        self.computing.wait(event)


class Kernels:
    """A `gt.worker.device_kernels.Collectives` of a model, which takes what is to go that way."""

    timeout_seconds = 30.0

    def __init__(self, model: Model) -> None:
        self._model = model

    def refusal(
        self,
        op: str,
        attributes: dict[str, object],
        ranks: int,
        operand: Tensor | None,
        result: Tensor | None,
    ) -> str | None:
        return None if attributes["way"] == "kernels" else "it"

    def region_bytes(self, ranks: int) -> int:
        return REGION_BYTES

    def group(
        self, me: int, regions: list[int], errors: Tensor, base: int
    ) -> device_kernels.Launch:
        def launch(op: str, attributes: dict[str, object], *rest: object) -> None:
            self._model.meetings.steps.append(Step("kernel", str(attributes["tag"]).encode()))

        return launch


class Instruction(NamedTuple):
    """A collective in the dispatcher's order."""

    tag: int
    members: list[int]
    way: str


class Begun:
    """One member's part in a collective."""

    def __init__(self, rendezvous: DeviceRendezvous, payload: bytes) -> None:
        self.rendezvous, self.payload = rendezvous, payload
        self.round, self.is_done, self.is_complete = 0, False, False
        self.is_used = self.is_ended = False
        self.last: list[bytes | None] = []


class Hosts:
    """Workers and their messages: who has sent what in which round of which collective."""

    def __init__(self, count: int = MEMBERS) -> None:
        self.models = [Model(index) for index in range(count)]
        self.devices = [
            Devices(model, DeviceKernels(model, Kernels(model))) for model in self.models
        ]
        self.sent: dict[tuple[int, int], dict[int, bytes]] = defaultdict(dict)
        self.begun: list[dict[int, Begun]] = [{} for _ in self.models]
        self.instructions: dict[int, Instruction] = {}

    def begin(self, member: int, instruction: Instruction) -> None:
        self.instructions[instruction.tag] = instruction
        place = instruction.members.index(member)
        attributes: dict[str, object] = {"way": instruction.way, "tag": instruction.tag}
        begun = self.devices[member].rendezvous(
            "all_reduce",
            attributes,
            instruction.tag,
            instruction.members,
            place,
            torch.ones(2),
            torch.empty(2),
        )
        assert begun is not None
        part = self.begun[member][instruction.tag] = Begun(*begun)
        self.sent[instruction.tag, 0][member] = part.payload

    def can_go_on(self, member: int, tag: int) -> bool:
        """True where the current round is over on this member."""
        part, members = self.begun[member][tag], self.instructions[tag].members
        return not part.is_complete and len(self.sent[tag, part.round]) == len(members)

    def go_on(self, member: int, tag: int) -> None:
        part, (_, members, _) = self.begun[member][tag], self.instructions[tag]
        payloads = [self.sent[tag, part.round][one] for one in members]
        part.round += 1
        if part.is_done:
            part.is_complete, part.last = True, list(payloads)
            return
        turn = part.rendezvous.negotiate(payloads, _reads(len(members), part.round == 1))
        assert turn is not None, "by bytes"
        part.is_done, payload = turn
        self.sent[tag, part.round][member] = payload

    def use(self, member: int, tag: int) -> bool:
        """Lets what is computed wait for a result; whether that could be."""
        part = self.begun[member][tag]
        if not part.is_done or not part.rendezvous.is_over():
            return False
        if not part.is_used:
            part.rendezvous.finish()
            part.is_used = True
        return True

    def end(self, member: int, tag: int) -> bool:
        """Takes borrowed memory back; whether that could be."""
        part = self.begun[member][tag]
        if not part.is_complete or not part.rendezvous.is_over():
            return False
        if not part.is_ended:
            part.rendezvous.end(part.last)
            part.is_ended = True
        return True

    def is_through(self, member: int) -> bool:
        """True where all rounds that this member has begun are over."""
        return all(part.is_complete for part in self.begun[member].values())

    def run_devices(self) -> list[Step]:
        """Until nothing moves; what stands first in queues that have not come to their end."""
        recorded: set[bytes] = set()
        queues = [
            queue for one in self.models for queue in (one.computing, one.beside, one.meetings)
        ]
        moves = True
        while moves:
            moves = False
            for queue in queues:
                while (step := queue.first) and self._can_run(step, recorded):
                    recorded.add(step.name)
                    moves = True
                    if step.kind == "kernel":
                        for member in self.instructions[int(step.name)].members:
                            self.models[member].meetings.done_steps += 1
                    else:
                        queue.done_steps += 1
        return [queue.first for queue in queues if queue.first is not None]

    def _can_run(self, step: Step, recorded: set[bytes]) -> bool:
        if step.kind == "wait":
            return step.name in recorded
        if step.kind == "record":
            return True
        members = self.instructions[int(step.name)].members
        return all(self.models[member].meetings.first == step for member in members)


def _reads(count: int, first: bool) -> DirectReads | None:
    if not first:
        return None
    shard = (0, 1, 2, 2)
    return None, ("sum", [shard] * count, shard), [], False


def run(seed: int) -> tuple[Hosts, list[Step]]:
    """Random collectives of random members: what devices are left with when hosts are through."""
    rng = random.Random(seed)
    hosts = Hosts()
    program = [
        Instruction(
            tag,
            sorted(rng.sample(range(MEMBERS), rng.choice([2, 2, 2, 3, 4]))),
            rng.choice(["kernels", "kernels", "copies"]),
        )
        for tag in range(14)
    ]
    # For each member: collectives to begin, and before each of them some to use or to end.
    left = [[one for one in program if member in one.members] for member in range(MEMBERS)]
    needs = {
        (member, one.tag): [
            (rng.choice([hosts.use, hosts.end]), before.tag)
            for before in left[member][:place]
            if rng.random() < 0.3
        ]
        for member in range(MEMBERS)
        for place, one in enumerate(left[member])
    }
    speed = [rng.choice([0.01, 0.1, 1]) for _ in range(MEMBERS)]
    for _ in range(100_000):
        if not any(left) and all(hosts.is_through(member) for member in range(MEMBERS)):
            break
        member = rng.choices(range(MEMBERS), speed)[0]
        rounds = [tag for tag in hosts.begun[member] if hosts.can_go_on(member, tag)]
        if rounds and rng.random() < 0.5:
            hosts.go_on(member, rng.choice(rounds))
        elif left[member]:
            instruction = left[member][0]
            if all(done(member, tag) for done, tag in needs[member, instruction.tag]):
                hosts.begin(member, left[member].pop(0))
    for member in range(MEMBERS):
        assert not left[member], f"seed {seed}: a host waits for ever"
        for tag in hosts.begun[member]:
            assert hosts.use(member, tag), f"seed {seed}: a result that does not come"
            assert hosts.end(member, tag), f"seed {seed}: a collective without an end"
    return hosts, hosts.run_devices()


def launched(hosts: Hosts, member: int) -> list[int]:
    steps = hosts.models[member].meetings.steps
    return [int(step.name) for step in steps if step.kind == "kernel"]


@pytest.mark.parametrize("seed", range(100))
def test_no_kernel_waits_for_ever(seed: int) -> None:
    """Whatever the order of rounds, in groups that overlap; some of the collectives are copies."""
    hosts, stuck = run(seed)
    assert not stuck
    for member in range(MEMBERS):
        mine = launched(hosts, member)
        assert mine == sorted(mine), "not in the order of their instructions"
        for tag in hosts.begun[member]:
            by = [tag in launched(hosts, other) for other in hosts.instructions[tag].members]
            assert len(set(by)) == 1, "two ways in one collective"


class _Launches:
    """Number of collectives in all runs that used kernels."""

    def __init__(self) -> None:
        self.kernels = self.offered = self.stuck = 0


def _over_seeds(count: int) -> _Launches:
    found = _Launches()
    for seed in range(count):
        hosts, stuck = run(seed)
        found.stuck += bool(stuck)
        found.offered += sum(one.way == "kernels" for one in hosts.instructions.values())
        found.kernels += len({tag for member in range(MEMBERS) for tag in launched(hosts, member)})
    return found


def in_any_order(kernels: DeviceKernels) -> None:
    """An order that `DeviceKernels.advance` must not use."""
    for call in list(kernels._calls):
        if call.is_ready():
            kernels._calls.remove(call)
            call.make()


def always(*_: object) -> bool:
    return True


def test_kernels_in_another_order_than_their_instructions_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = _over_seeds(60)
    assert plain.stuck == 0
    # The others are among a group that crosses one which had not begun.
    assert plain.kernels > plain.offered // 4
    monkeypatch.setattr(DeviceKernels, "advance", in_any_order)
    monkeypatch.setattr(DeviceKernels, "_may_begin", always)
    assert _over_seeds(60).stuck


def four_in_a_ring() -> tuple[Hosts, list[Step]]:
    """Two kernels and two collectives by copies, of which a slow member keeps the first back.

    The copies of the last one are queued before those of the first, and wait for the second kernel;
    that one waits for the first kernel, whose operand waits until what it gave has been read.
    """
    hosts = Hosts()
    reader, slow, middle, fast = range(4)
    ways = [
        ([reader, slow], "copies"),
        ([slow, middle], "kernels"),
        ([middle, fast], "kernels"),
        ([reader, fast], "copies"),
    ]
    for tag, (members, way) in enumerate(ways):
        for turn in range(2):
            together(hosts, 100 + 10 * tag + turn, members, way)
    first, one_kernel, other_kernel, last = (
        Instruction(tag, members, way) for tag, (members, way) in enumerate(ways)
    )
    hosts.begin(middle, one_kernel)
    for member in (middle, fast):
        hosts.begin(member, other_kernel)
    for member in (middle, fast):
        hosts.go_on(member, other_kernel.tag)
    assert hosts.use(fast, other_kernel.tag)
    hosts.begin(reader, first)
    for member in (reader, fast):
        hosts.begin(member, last)
    hosts.go_on(reader, last.tag)
    hosts.begin(slow, first)
    for _ in range(2):
        for member in (reader, slow):
            hosts.go_on(member, first.tag)
    assert hosts.end(slow, first.tag)
    hosts.begin(slow, one_kernel)
    for member in (slow, middle):
        hosts.go_on(member, one_kernel.tag)
    return hosts, hosts.run_devices()


def test_kernels_and_copies_do_not_wait_in_a_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, stuck = four_in_a_ring()
    assert not stuck
    assert launched(hosts, 1)[-1] == 1, "the first kernel"
    assert 2 not in launched(hosts, 3), "the second goes by copies: the first may be long in coming"
    monkeypatch.setattr(DeviceKernels, "_may_begin", always)
    hosts, stuck = four_in_a_ring()
    assert Step("kernel", b"2") in stuck


# ---- groups ----


def together(hosts: Hosts, tag: int, members: list[int], way: str = "kernels") -> None:
    """A collective from its begin to its end."""
    for member in members:
        hosts.begin(member, Instruction(tag, members, way))
    while any(hosts.can_go_on(member, tag) for member in members):
        for member in members:
            if hosts.can_go_on(member, tag):
                hosts.go_on(member, tag)
    assert all(hosts.end(member, tag) for member in members)


def test_a_group_has_memory_once_and_gives_it_back_when_it_has_rested_longest() -> None:
    count = device_kernels.GROUPS_MAX + 3
    hosts = Hosts(count)
    kernels, model = hosts.devices[0].kernels, hosts.models[0]
    assert kernels is not None
    for other in range(1, count - 1):
        for turn in range(3):
            together(hosts, 10 * other + turn, [0, other])
    # Two had to go: what is computed from then on comes after the others' kernels.
    assert len(kernels._groups) == device_kernels.GROUPS_MAX
    assert [model.opened[one].split()[0] for one in model.closed] == [b"1"]
    together(hosts, 900, [0, count - 1])
    assert [model.opened[one].split()[0] for one in model.closed] == [b"1", b"2"]
    # The first one begins anew; its other member learns so, and that one goes by copies.
    for turn in range(3):
        together(hosts, 950 + turn, [0, 1])
    assert [tag for tag in launched(hosts, 0) if tag >= 950] == [951, 952]
    assert not hosts.run_devices()


def test_more_groups_at_a_time_than_there_is_memory_for_go_by_copies() -> None:
    count = device_kernels.GROUPS_MAX + 2
    kernels = Hosts(1).devices[0].kernels
    assert kernels is not None
    calls = []
    for other in range(1, count):
        calls.append(kernels.begin("it", {"way": "kernels"}, [0, other], 0, None, None))
        kernels._calls.clear()  # as if it were launched, and in flight
    assert [call is None for call in calls] == [False] * device_kernels.GROUPS_MAX + [True]


def test_a_member_that_is_gone_ends_the_group_and_keeps_its_memory() -> None:
    hosts = Hosts(3)
    for turn in range(2):
        together(hosts, turn, [0, 1, 2])
    tag, kernels = 5, hosts.devices[0].kernels
    assert kernels is not None
    for member in range(3):
        hosts.begin(member, Instruction(tag, [0, 1, 2], "kernels"))
    # The first has launched; the second hears that the third is gone before it has its payload.
    hosts.go_on(0, tag)
    for member, last in ((0, [b"", None, None]), (1, [None] * 3)):
        part = hosts.begun[member][tag].rendezvous
        if member:
            part.lose(2)
        part.end(last)
        ours = hosts.devices[member].kernels
        assert ours is not None
        assert [len(ours._groups), len(ours._retired)] == [0, 1]
    # The two of them, and a third worker that comes in its place, have groups of their own.
    for turn in range(10, 12):
        together(hosts, turn, [0, 1])
    hosts.models[2] = Model(2)
    hosts.devices[2] = Devices(
        hosts.models[2], DeviceKernels(hosts.models[2], Kernels(hosts.models[2]))
    )
    for turn in range(20, 23):
        together(hosts, turn, [0, 1, 2])
    assert launched(hosts, 2) == [20, 21, 22]
    assert launched(hosts, 1) == [0, 1, 10, 11, 20, 21, 22]


def test_members_that_remember_different_groups_begin_anew() -> None:
    hosts = Hosts(2)
    together(hosts, 0, [0, 1])
    theirs = hosts.devices[1].kernels
    assert theirs is not None
    (group,) = theirs._groups.values()
    group.is_over = True
    for tag in range(1, 4):
        together(hosts, tag, [0, 1])
    assert launched(hosts, 0) == launched(hosts, 1) == [0, 2, 3]


def test_a_loss_is_told_and_what_comes_then_is_well() -> None:
    hosts = Hosts(2)
    together(hosts, 0, [0, 1])
    devices, kernels = hosts.devices[0], hosts.devices[0].kernels
    assert kernels is not None
    kernels.errors.words[0] = 2
    devices.check()  # nothing has come to the host
    together(hosts, 1, [0, 1])
    with pytest.raises(
        LostError, match="worker 1 has not come to a collective on the devices within 30"
    ):
        hosts.begin(0, Instruction(2, [0, 1], "kernels"))
    assert devices.take_loss()
    assert not devices.take_loss()
    devices.check()
    for tag in range(3, 6):
        together(hosts, tag, [0, 1])
    assert launched(hosts, 0) == launched(hosts, 1) == [0, 1, 4, 5]


def test_what_is_read_of_a_worker_with_an_error_is_one() -> None:
    """By copies, from worker to worker."""
    hosts = Hosts(2)
    ours = hosts.devices[0].kernels
    assert ours is not None

    def read(opened: int, start: int, stride: int, to: Tensor) -> None:
        to.fill_(int(b"".join(hosts.models[0].opened[opened : opened + 1]).startswith(b"1")))

    hosts.models[0].read = read  # type: ignore[method-assign]
    together(hosts, 0, [0, 1], "copies")
    with pytest.raises(LostError, match="has read from another"):
        hosts.devices[0].check()
    hosts.devices[1].check()


def test_a_launch_that_fails_is_its_own_collectives_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it had to wait for its turn; what stands behind it in another group goes on."""
    hosts = Hosts(3)
    for turn in range(2):
        together(hosts, turn, [0, 1])
        together(hosts, 10 + turn, [0, 1, 2])
    for member in (0, 1):
        hosts.begin(member, Instruction(20, [0, 1], "kernels"))
    for member in range(3):
        hosts.begin(member, Instruction(21, [0, 1, 2], "kernels"))

    def refuse(*_: object) -> None:
        raise ValueError("no such launch")

    ours = hosts.devices[0].kernels
    assert ours is not None
    monkeypatch.setattr(ours._groups[0, 1], "launch", refuse)
    hosts.go_on(0, 21)
    assert not hosts.begun[0][21].rendezvous.is_over()
    with pytest.raises(ValueError, match="no such launch"):
        hosts.go_on(0, 20)
    assert hosts.use(0, 21)
    hosts.begun[0][20].rendezvous.end([None, None])
    assert launched(hosts, 0) == [0, 10, 1, 11, 21]
    assert len(ours._retired) == 1
