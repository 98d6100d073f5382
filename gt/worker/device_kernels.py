"""Collectives by kernels that wait on their devices for each other: their launches and the order.

A kernel that waits for those of other members must never wait for one that waits for it. All are
launched on one queue of each device, in the order in which their instructions have begun, which is
the dispatcher's on every member; and a member offers one only if those that it has not launched yet
have no members besides. Why that is enough: docs/decisions/data_plane.md.

The kernels stand behind `Collectives` (`gt.worker.cuda.collectives`): no CUDA here.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Protocol

import torch
from torch import Tensor

from gt import _core
from gt.worker import own_calls
from gt.worker.device import BorrowedBuffer, Device, DeviceBuffers, KernelOffer
from gt.worker.device_errors import DeviceErrors

# Each group has a region of some 16 MiB. A layout has a group for each of its dims' lines; further
# groups go on by copies, or take the place of an idle group.
GROUPS_MAX = 8
DIGEST_BYTES = 16
_NO_GROUP = bytes(DIGEST_BYTES)

# Queues one collective of a group: its operator, attributes, members, operand and result.
Launch = Callable[[str, dict[str, object], list[int], Tensor | None, Tensor | None], None]


class Collectives(Protocol):
    """The kernels of a device."""

    timeout_seconds: float

    def refusal(
        self,
        op: str,
        attributes: dict[str, object],
        ranks: int,
        operand: Tensor | None,
        result: Tensor | None,
    ) -> str | None:
        """The reason for which no kernel takes it; None if one does. All members come to one
        verdict.
        """

    def region_bytes(self, ranks: int) -> int:
        """Bytes of each member's memory in which the kernels of a group meet."""

    def group(self, me: int, regions: list[int], errors: Tensor, base: int) -> Launch:
        """A function that launches for one member and counts its calls.

        Args:
            me: its place in the group.
            regions: the addresses of all members' regions.
            errors: the two error words of this process.
            base: an error is reported as base + 1 + the place of the member that did not come.
        """


class _Group:
    """Members that share memory, from the first collective that is offered to them on."""

    def __init__(self, region: Tensor, offered: BorrowedBuffer) -> None:
        self.region, self.offered = region, offered
        # Digest of the regions among which kernels have been launched.
        self.digest = _NO_GROUP
        self.launch: Launch | None = None
        self.opened: list[int] = []
        # Offered collectives that have not ended, and the number of launched ones.
        self.calls = self.launched = 0
        # Events behind the others' kernels of the newest call that has ended; None if not all are
        # known, and those kernels may still write to our region.
        self.events: list[bytes] | None = []
        self.ended = 0
        # True once nobody launches any more.
        self.is_over = False

    def fail(self) -> None:
        """Marks the group: members may have launched kernels that others have not, which write to
        our region.
        """
        self.is_over, self.events, self.ended = True, None, sys.maxsize


class KernelCall:
    """Our part in one collective that is offered to go by kernels."""

    def __init__(
        self,
        kernels: DeviceKernels,
        group: _Group,
        instruction: tuple[str, dict[str, object], list[int], int],
        values: tuple[Tensor | None, Tensor | None],
    ) -> None:
        self._kernels, self._group = kernels, group
        self._op, self._attributes, self._members, self._me = instruction
        self._operand, self._result = values
        self.members = frozenset(self._members)
        self.offer = KernelOffer(group.digest, group.offered)
        # Event behind our kernel, once it is launched.
        self.event: bytes | None = None
        self._buffers: Sequence[DeviceBuffers] | None = None
        self._number: int | None = None
        self._errors = kernels.errors
        self._error: Exception | None = None
        group.calls += 1

    def is_agreed(self, buffers: Sequence[DeviceBuffers]) -> bool:
        """True if all members launch it; the members' payloads give the same answer on each."""
        offers = [shared.kernel for shared in buffers]
        without = [
            member for member, offer in zip(self._members, offers, strict=True) if offer is None
        ]
        digest = _digest(buffers)
        groups = {_NO_GROUP, digest}
        if not without and all(offer is None or offer.group in groups for offer in offers):
            return True
        if without:
            reason = f"what worker {without[0]} does not offer"
            self._kernels.tell(self._op, reason, self._operand, self._result)
        elif self._group.digest not in groups:
            # A member has begun anew, so we do too.
            self._group.is_over = True
        self.cancel()
        return False

    def is_known(self, buffers: Sequence[DeviceBuffers]) -> bool:
        """True if all members have opened the regions of all before."""
        digest = _digest(buffers)
        return all(
            shared.kernel is not None and shared.kernel.group == digest for shared in buffers
        )

    def open(self, buffers: Sequence[DeviceBuffers]) -> None:
        """Maps the others' regions; raises OSError where that cannot be."""
        if not self._group.opened:
            for place, shared in enumerate(buffers):
                if place != self._me and shared.kernel is not None:
                    name = shared.kernel.region.name
                    self._group.opened.append(self._kernels.device.open(name))

    def launch(self, buffers: Sequence[DeviceBuffers]) -> None:
        """Called when all have agreed: launches it in its turn.

        Raises:
            Exception: It was its turn, and it cannot be.
        """
        self._buffers = buffers
        self._kernels.advance()
        if self._error is not None:
            raise self._error

    def is_ready(self) -> bool:
        """True if it can be launched when its turn comes."""
        return self._buffers is not None

    def is_over(self) -> bool:
        """True if it is launched, or never will be."""
        return self.event is not None or self._error is not None

    def make(self) -> None:
        """Launches; it is its turn."""
        assert self._buffers is not None, "launched before all have agreed"
        device = self._kernels.device
        try:
            launch = self._launch_of_group(self._buffers)
            self._number = self._group.launched = self._group.launched + 1
            for shared in self._buffers:
                device.meetings.wait(shared.event)
            device.meetings.run(lambda: self._queue(launch))
            self.event = device.meetings.done()
        except (RuntimeError, OSError, ValueError, TypeError) as error:
            # Another collective's turn may be reported first; this one fails where its result is
            # asked for.
            self._error = error
        else:
            own_calls.count()

    def finish(self) -> None:
        """Makes all later computation wait for the result; raises what `launch` does."""
        if self._error is not None:
            raise self._error
        self.wait()

    def wait(self) -> None:
        """Makes all later computation wait for our kernel."""
        if self.event is not None:
            self._kernels.device.wait_to_compute(self.event)

    def lose(self) -> None:
        """Reports that a member is gone: others may have launched kernels that we shall not."""
        self._group.fail()

    def cancel(self) -> None:
        """Takes it out of the queue: it goes another way, or nowhere."""
        self._kernels.end(self, self._group)

    def end(self, payloads: Sequence[bytes | None]) -> None:
        """Ends the call, well or not: `payloads` are the members' last."""
        self.wait()
        if self._buffers is not None:
            self._end_agreed(payloads)
        self._kernels.end(self, self._group)

    def _end_agreed(self, payloads: Sequence[bytes | None]) -> None:
        group = self._group
        others = [payload for place, payload in enumerate(payloads) if place != self._me]
        said = [payload for payload in others if payload is not None]
        if self._number is None or len(said) < len(others) or not payloads:
            group.fail()
        elif self._number > group.ended:
            group.ended = self._number
            # A kernel that waits for its turn has no event yet.
            events = [event for event in map(_core.decode_device_event, said) if event]
            group.events = events if len(events) == len(others) else None

    def _queue(self, launch: Launch) -> None:
        launch(self._op, self._attributes, self._members, self._operand, self._result)
        self._errors.show_own()

    def _launch_of_group(self, buffers: Sequence[DeviceBuffers]) -> Launch:
        group, kernels = self._group, self._kernels
        if group.is_over:
            raise ConnectionError(f"the kernels' group of workers {self._members} is given up")
        if group.launch is None:
            group.launch = kernels.launch_of(self._members, self._me, group, buffers)
            group.digest = _digest(buffers)
        return group.launch


class DeviceKernels:
    """The groups of this worker's kernels, and the calls that have not been launched yet.

    Args:
        device: the device on which they run.
        collectives: the kernels.
    """

    def __init__(self, device: Device, collectives: Collectives) -> None:
        self.device = device
        self.collectives = collectives
        self.errors = DeviceErrors(device, collectives.timeout_seconds)
        # Error words of earlier losses, two for each.
        self._old_errors: list[DeviceErrors] = []
        # Groups, the longest unused first.
        self._groups: OrderedDict[tuple[int, ...], _Group] = OrderedDict()
        # Groups with memory into which a member may still write: it stays.
        self._retired: list[_Group] = []
        # Calls that are offered and not launched, in the order of the instructions.
        self._calls: deque[KernelCall] = deque()
        self._told: set[tuple[str, str]] = set()

    def begin(
        self,
        op: str,
        attributes: dict[str, object],
        members: list[int],
        me: int,
        operand: Tensor | None,
        result: Tensor | None,
    ) -> KernelCall | None:
        """Our part in the collective; None if we cannot launch it."""
        reason = self.collectives.refusal(op, attributes, len(members), operand, result)
        group = None
        if reason is None and not self._may_begin(members):
            reason = "one among workers of which others are still awaited elsewhere"
        if reason is None:
            group = self._group(members)
            reason = f"one in more than {GROUPS_MAX} groups at a time" if group is None else None
        if group is None:
            assert reason is not None
            self.tell(op, reason, operand, result)
            return None
        call = KernelCall(self, group, (op, attributes, members, me), (operand, result))
        self._calls.append(call)
        return call

    def advance(self) -> None:
        """Launches the calls whose turn it is."""
        while self._calls and self._calls[0].is_ready():
            self._calls.popleft().make()

    def end(self, call: KernelCall, group: _Group) -> None:
        """Removes a call that has ended."""
        group.calls -= 1
        if call in self._calls:
            self._calls.remove(call)
        if group.is_over:
            self._give_up(group)
        self.advance()

    def launch_of(
        self, members: list[int], me: int, group: _Group, buffers: Sequence[DeviceBuffers]
    ) -> Launch:
        """The function that launches for us in a group whose regions are all open."""
        opened = iter(group.opened)
        regions = [
            group.region.data_ptr()
            if place == me
            else self.device.address(next(opened)) + shared.kernel.region.start
            for place, shared in enumerate(buffers)
            if shared.kernel is not None
        ]
        base = self.errors.base(members)
        return self.collectives.group(me, regions, self.errors.words, base)

    def take_loss(self) -> bool:
        """True if a collective has not come to its end; new error words hold for values made from
        now on.
        """
        if not self.errors.is_set():
            return False
        for group in list(self._groups.values()):
            self._give_up(group)
        # Others may read the old words while the values that these describe are in flight.
        self._old_errors.append(self.errors)
        self.errors = DeviceErrors(self.device, self.collectives.timeout_seconds)
        return True

    def tell(self, op: str, reason: str, operand: Tensor | None, result: Tensor | None) -> None:
        """Says once for each operator and reason that it goes by copies."""
        if (op, reason) in self._told:
            return
        self._told.add((op, reason))
        value = result if operand is None else operand
        shape = "" if value is None else f" (operand {tuple(value.shape)})"
        sys.stderr.write(
            f"gt.worker: copies do {op} in place of GT's own CUDA kernel, which does not take "
            f"{reason}{shape}; told once\n"
        )

    def _may_begin(self, members: list[int]) -> bool:
        """True if all members of the calls that we have not launched begin those before
        this one.
        """
        return all(call.members <= set(members) for call in self._calls)

    def _group(self, members: list[int]) -> _Group | None:
        """The group that is offered to these members; None if there is no room for one more."""
        key = tuple(members)
        group = self._groups.get(key)
        if group is not None and group.is_over:
            self._give_up(group)
            group = None
        if group is not None:
            self._groups.move_to_end(key)
            return group
        if len(self._groups) + len(self._retired) >= GROUPS_MAX:
            resting = [one for one in self._groups.values() if _rests(one)]
            if not resting:
                return None
            self._give_up(resting[0])
        region = self.device.zeros(self.collectives.region_bytes(len(members)), torch.uint8)
        exported = self.device.export(region)
        if exported is None:
            return None
        self._groups[key] = _Group(region, BorrowedBuffer(*exported, region.nbytes))
        return self._groups[key]

    def _give_up(self, group: _Group) -> None:
        """Ends launches in a group; its memory is freed if no kernel writes to it."""
        group.is_over = True
        for key in [key for key, other in self._groups.items() if other is group]:
            del self._groups[key]
            self._retired.append(group)
        if group in self._retired and _rests(group):
            self._retired.remove(group)
            # The allocator reuses memory in the order of the computation.
            for event in group.events or ():
                self.device.wait_to_compute(event)
            for opened in group.opened:
                self.device.close(opened)


def _rests(group: _Group) -> bool:
    return not group.calls and group.events is not None


def _digest(buffers: Sequence[DeviceBuffers]) -> bytes:
    """A digest of the regions of all members, and of their processes."""
    hashed = blake2b(digest_size=DIGEST_BYTES)
    for shared in buffers:
        offer = shared.kernel
        name = b"" if offer is None else offer.region.name
        start = 0 if offer is None else offer.region.start
        for part in (shared.process, name, start.to_bytes(8, "little")):
            hashed.update(len(part).to_bytes(8, "little") + part)
    return hashed.digest()
