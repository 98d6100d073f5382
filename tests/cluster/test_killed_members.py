"""A worker that is killed in the middle of a collective, each kind of it, by each link.

The worker is stopped and let run by turns until it has done a part of its work and the collective
cannot end without the rest; then it is killed.
"""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from cluster import Cluster, until

import gt
from gt import Layout, Partial, Replicate, Shard
from gt import distributed as dist

MEMBERS = 3
VICTIM = 1
ROWS, COLUMNS = 3 * 1024, 4096  # 48 MB of float32: a thousand chunks on each link
PART_SECONDS = (
    0.004  # of a processor's time that the victim gets; the whole takes it ten times that
)
PART_SECONDS_MIN = PART_SECONDS / 16
PARTS_MAX = 40  # a moment that comes too late is tried again with half the time, then as it is
KILLS_MAX = 5  # a death that comes after the victim's part is tried again
NOTICED_SECONDS = 10.0  # of a death: ten times what it takes on a busy machine

Collective = Callable[[gt.Tensor], gt.Tensor]
PARTIAL, CUT, WHOLE = [Partial()], [Shard(0)], [Replicate()]
COLLECTIVES: dict[str, tuple[list[object], list[int], Collective]] = {
    "all_reduce": (PARTIAL, [0, 1, 2], dist.all_reduce),
    "reduce_scatter": (PARTIAL, [0, 1, 2], lambda x: dist.reduce_scatter(x, 0)),
    "all_gather": (CUT, [0, 1, 2], dist.all_gather),
    "all_to_all": (CUT, [0, 1, 2], lambda x: dist.all_to_all(x, 1)),
    # The others have their copies; who reads the victim's waits for it.
    "broadcast to it": (WHOLE, [0], lambda x: dist.broadcast(x, 0).to_local(VICTIM)),
    "broadcast from it": (WHOLE, [VICTIM], lambda x: dist.broadcast(x, VICTIM)),
    "send to it": (WHOLE, [0], lambda x: dist.send(x, VICTIM)),
    "send from it": (WHOLE, [VICTIM], lambda x: dist.send(x, 2)),
}


@pytest.fixture(scope="module", params=["shared memory", "TCP", "TCP, rounded to int8"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three workers; who kills one starts another in its place."""
    with pytest.MonkeyPatch.context() as patch, Cluster(0) as running:
        if request.param.startswith("TCP"):
            running.command.append("--tcp")
        if request.param.endswith("int8"):
            patch.setenv("GT_COMPRESSION", "on,int8")
        for _ in range(MEMBERS):
            running.add_worker()
        running.wait_for_workers()
        gt.connect(running.address)
        yield running
        gt.disconnect()


@pytest.fixture(autouse=True)
def members(cluster: Cluster) -> None:
    """All of them, whatever a test before has left."""
    if len(cluster.workers) < MEMBERS:
        cluster.add_worker()
    cluster.wait_for_workers()


def kill_victim(cluster: Cluster) -> None:
    """Return when the dispatcher knows: who joins before that gets another index.

    It waits for a moment whether a worker whose connection has closed dials again.
    """
    line = f"worker {VICTIM} is gone"
    before = cluster.log.count(line)
    cluster.kill_worker(VICTIM)
    until(lambda: cluster.log.count(line) > before)


def pid_of(cluster: Cluster, index: int) -> int:
    (pid,) = [
        one.pid for one in cluster.workers if f'worker {index} ("worker {one.pid}")' in cluster.log
    ]
    return pid


def processor_seconds(pid: int) -> float:
    """Processor time of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def run_for(pid: int, seconds: float, is_over: Callable[[], bool]) -> None:
    """Let a stopped process run for so long on a processor, unless there is nothing left for it."""
    end = processor_seconds(pid) + seconds
    os.kill(pid, signal.SIGCONT)
    until(lambda: processor_seconds(pid) >= end or is_over())
    os.kill(pid, signal.SIGSTOP)


class Reading(threading.Thread):
    """A read that waits for a collective: what it has given, or raised."""

    def __init__(self, tensor: gt.Tensor) -> None:
        super().__init__(daemon=True)
        self.tensor = tensor
        self.outcome: float | gt.Error | None = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self.tensor.sum().item()
        except gt.Error as error:
            self.outcome = error

    def is_over(self) -> bool:
        return self.outcome is not None


def begun(cluster: Cluster, name: str) -> Reading:
    """A read that waits for a collective, a part of which the victim has done; it is stopped."""
    placements, workers, collective = COLLECTIVES[name]
    pid, seconds = pid_of(cluster, VICTIM), PART_SECONDS
    for _ in range(PARTS_MAX):
        mesh = gt.DeviceMesh((len(workers),), workers)
        layout = Layout(mesh, (ROWS, COLUMNS), placements=placements)
        operand = gt.distribute(gt.ones(ROWS, COLUMNS), layout)
        assert operand.to_local(0).sum().isfinite().item()
        gt.synchronize()
        os.kill(pid, signal.SIGSTOP)
        reading = Reading(collective(operand))
        run_for(pid, seconds, reading.is_over)
        reading.join(0.5)  # what the others can do without it is over by then
        if not reading.is_over():
            return reading
        assert reading.outcome == pytest.approx(ROWS * COLUMNS, rel=1e-4)  # a codec may round
        os.kill(pid, signal.SIGCONT)
        seconds = max(seconds / 2, PART_SECONDS_MIN)
    raise AssertionError(f"{name} {PARTS_MAX} times over before the worker had {seconds} s")


def slabs(pid: int) -> int:
    """Shared memory for bytes that a process has mapped or open."""
    opened = [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink()]
    mapped = Path(f"/proc/{pid}/maps").read_text()
    return mapped.count("memfd:gt-slab") + sum("memfd:gt-slab" in one for one in opened)


def sum_over_everyone() -> gt.Tensor:
    """A sum of ones, reduced by all three members."""
    layout = Layout(gt.DeviceMesh(MEMBERS), (ROWS, 8), placements=PARTIAL)
    return dist.all_reduce(gt.distribute(gt.ones(ROWS, 8), layout))


@pytest.mark.filterwarnings("ignore::gt.UnreadFailureWarning")  # of operand and result
@pytest.mark.parametrize("name", COLLECTIVES)
def test_the_others_get_an_error_and_go_on(cluster: Cluster, name: str) -> None:
    layout = Layout(gt.DeviceMesh((2,), [0, 2]), (1000,), 0)
    kept = gt.distribute(gt.arange(1000), layout)
    assert kept.sum().item() == 499_500
    survivors = [pid_of(cluster, 0), pid_of(cluster, 2)]
    # One each way to the dispatcher and to each of the others.
    has_slabs = cluster.command[-1] != "--tcp"
    for _ in range(KILLS_MAX):
        reading = begun(cluster, name)
        until(lambda: [slabs(pid) for pid in survivors] == [6 * has_slabs] * 2)
        died = time.monotonic()
        kill_victim(cluster)
        reading.join(NOTICED_SECONDS)
        assert reading.is_over(), "nobody told the read"
        if reading.outcome != pytest.approx(ROWS * COLUMNS, rel=1e-4):
            break
        cluster.add_worker()  # the victim had done all of its part
        cluster.wait_for_workers()
    assert isinstance(reading.outcome, gt.errors.WorkerError), reading.outcome
    assert f"worker {VICTIM} is gone" in str(reading.outcome)
    # Values that the others hold remain, and they reach collectives without the dead member.
    np.testing.assert_array_equal(dist.all_gather(kept).numpy(), np.arange(1000))
    assert time.monotonic() - died < NOTICED_SECONDS
    until(lambda: [slabs(pid) for pid in survivors] == [4 * has_slabs] * 2)
    cluster.add_worker()
    cluster.wait_for_workers()
    assert sum_over_everyone().sum().item() == ROWS * 8


PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000


@contextmanager
def held(pid: int, thread: str) -> Iterator[None]:
    """A thread of a child process stands still, the others go on."""
    tasks = Path(f"/proc/{pid}/task").glob("*/comm")
    (task,) = [int(one.parent.name) for one in tasks if one.read_text().strip() == thread]
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        assert ptrace(request, task, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(task, WALL)
    try:
        yield
    finally:
        ptrace(PTRACE_DETACH, task, None, None)


@pytest.mark.parametrize("knows", ["nothing", "the end of the old one"])
def test_instructions_may_come_before_the_word_that_a_worker_has_joined(
    cluster: Cluster, knows: str
) -> None:
    """The thread stands still that hears of other workers at the control socket."""
    if cluster.command[-1] == "--tcp":
        pytest.skip("all comes among the instructions there")
    assert sum_over_everyone().sum().item() == ROWS * 8
    survivors = [pid_of(cluster, 0), pid_of(cluster, 2)]
    with ExitStack() as stack:
        if knows != "nothing":
            kill_victim(cluster)
            until(lambda: [slabs(pid) for pid in survivors] == [4] * 2)
        for pid in survivors:
            stack.enter_context(held(pid, "gt-control"))
        if knows == "nothing":
            kill_victim(cluster)
        cluster.add_worker()
        cluster.wait_for_workers()
        reading = Reading(sum_over_everyone())
        reading.join(0.1)
        assert not reading.is_over(), reading.outcome
    reading.join(NOTICED_SECONDS)
    assert reading.outcome == ROWS * 8


@pytest.mark.filterwarnings("ignore::gt.UnreadFailureWarning")  # of what the old one was in
def test_who_sleeps_through_a_replacement_meets_the_new_one(cluster: Cluster) -> None:
    """It hears at once of a collective with the old one, its end, and one with the new one."""
    sleeper = pid_of(cluster, 0)
    for _ in range(3):
        assert sum_over_everyone().sum().item() == ROWS * 8
        os.kill(sleeper, signal.SIGSTOP)
        try:
            with_the_old = Reading(sum_over_everyone())
            kill_victim(cluster)
            cluster.add_worker()
            cluster.wait_for_workers()
            with_the_new = Reading(sum_over_everyone())
        finally:
            os.kill(sleeper, signal.SIGCONT)
        for reading in (with_the_old, with_the_new):
            reading.join(NOTICED_SECONDS)
        assert isinstance(with_the_old.outcome, gt.errors.WorkerError), with_the_old.outcome
        assert with_the_new.outcome == ROWS * 8
