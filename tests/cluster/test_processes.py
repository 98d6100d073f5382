"""Interrupts, kills and forks leave nothing behind and harm nobody.

Each case is a program in a process of its own, with numpy workers where torch makes no difference.
"""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import shared_memory
from cluster import until

RUN_SECONDS = 50.0
HELPERS = """
import os, signal, sys, threading, time
from pathlib import Path

# Whatever started the tests may ignore it: a shell does for what runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)

def workers(parent="self"):  # who forks them is none
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    children = [int(word) for task in tasks for word in task.read_text().split()]
    return [worker for child in children for worker in workers(child) or [child]]

def until(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)

def interrupt_when(holds):
    def watch():
        until(holds)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=watch, daemon=True).start()
"""


def start(code: str, *, helpers: str = HELPERS) -> "subprocess.Popen[str]":
    """A program of that text at work, with the helpers above."""
    return subprocess.Popen(
        [sys.executable, "-c", helpers + textwrap.dedent(code)],
        env=os.environ | {"GT_BACKEND": "numpy", "GT_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(code: str, *, helpers: str = HELPERS) -> list[str]:
    """The lines that a program prints which ends well."""
    with start(code, helpers=helpers) as program:
        try:
            printed, errors = program.communicate(timeout=RUN_SECONDS)
        finally:
            program.kill()
    assert program.returncode == 0, errors
    return printed.splitlines()


def alive(pid: int) -> bool:
    """True where a process with that number runs; a zombie does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_printing_a_tensor_leaves_nothing() -> None:
    """The first line that anybody types."""
    before = shared_memory.names()
    printed = run("import gt; print(gt.randn(2,2)); print(*workers())")
    assert printed[0].startswith("tensor([[")
    assert printed[1].endswith("]])")
    (worker,) = map(int, printed[2].split())
    until(lambda: not alive(worker))
    assert not shared_memory.left_since(before)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_a_program_ended_in_the_middle_leaves_nothing(sent: signal.Signals) -> None:
    """Work is in flight when the signal comes."""
    before = shared_memory.names()
    code = """
        import gt
        x = gt.ones(64, 64)
        print(x.sum().item(), *workers(), flush=True)
        while True:
            x = (x @ x) / 64
    """
    with start(code) as program:
        try:
            value, worker = program.stdout.readline().split()
            assert float(value) == 64.0 * 64.0
            program.send_signal(sent)
            program.communicate(timeout=RUN_SECONDS)
        finally:
            program.kill()
    assert program.returncode == -sent
    until(lambda: not alive(int(worker)))
    assert not shared_memory.left_since(before)


def test_a_program_killed_while_its_worker_starts_leaves_nothing() -> None:
    """The worker finds nobody when it is ready."""
    code = "import gt; gt.init(); print(*workers(), flush=True); signal.pause()"
    with start(code) as program:
        worker = int(program.stdout.readline())
        program.kill()
    until(lambda: not alive(worker))


def test_importing_starts_nothing_and_imports_no_torch() -> None:
    """Everything waits for the first operation."""
    code = """
        import gt
        print("torch" in sys.modules, workers(), threading.active_count(), gt.is_connected())
    """
    assert run(code) == ["False [] 1 False"]


FORK = """
import gt
x = gt.arange(4.0)
print(x.tolist(), flush=True)
child = os.fork()
if child == 0:
    %s
    sys.exit(0)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), (x + 1).tolist(), x.tolist())
"""


def test_a_forked_child_is_told_once_and_clearly() -> None:
    """Whatever it does first is one error; its end frees nothing of its parent's."""
    body = """
    make, show = lambda: gt.ones(2), lambda: repr(x)
    for use in (lambda: x + 1, x.tolist, make, gt.synchronize, show, gt.debug.stats):
        try:
            use()
        except RuntimeError as error:
            assert "before this process was forked" in str(error)
        else:
            sys.exit(3)
    del x
    """
    assert run(FORK % body)[1:] == ["0 [1.0, 2.0, 3.0, 4.0] [0.0, 1.0, 2.0, 3.0]"]


def test_a_forked_child_that_never_touches_gt_harms_nobody() -> None:
    """It ends as Python does, through the handlers of its exit."""
    assert run(FORK % "pass")[1:] == ["0 [1.0, 2.0, 3.0, 4.0] [0.0, 1.0, 2.0, 3.0]"]


def test_a_forked_child_may_disconnect() -> None:
    """The child disconnects its own session, not its parent's."""
    assert run(FORK % "gt.disconnect()")[1:] == ["0 [1.0, 2.0, 3.0, 4.0] [0.0, 1.0, 2.0, 3.0]"]


def test_a_fork_before_the_first_operation_gives_each_its_own() -> None:
    """Nothing is shared yet, so both may use gt."""
    code = """
        import gt
        child = os.fork()
        line = f"{gt.ones(2).tolist()}\\n"
        os.write(1, line.encode())  # one write: two processes share the pipe
        if child:
            print(os.waitpid(child, 0)[1])
    """
    assert run(code) == ["[1.0, 1.0]", "[1.0, 1.0]", "0"]


def test_multiprocessing_with_fork_leaves_the_parent_unharmed() -> None:
    """A pool whose children compute without gt."""
    code = """
        import gt, multiprocessing
        x = gt.arange(3.0)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(abs, [-1, -2]), x.tolist())
        print((x + 1).tolist())
    """
    assert run(code) == ["[1, 2] [0.0, 1.0, 2.0]", "[1.0, 2.0, 3.0]"]


def test_a_data_loader_with_workers_leaves_the_parent_unharmed() -> None:
    """torch's loader forks; the batches go through gt in the parent."""
    pytest.importorskip("torch")
    code = """
        import gt, torch
        total = gt.zeros(2)
        kept = gt.arange(3.0)
        data = torch.utils.data.TensorDataset(torch.arange(16.0).reshape(8, 2))
        for (batch,) in torch.utils.data.DataLoader(data, batch_size=2, num_workers=2):
            total = total + gt.tensor(batch.numpy()).sum(0)
        print(total.tolist(), kept.tolist())
    """
    assert run(code) == ["[56.0, 64.0] [0.0, 1.0, 2.0]"]


def test_an_interrupt_during_a_read_drops_only_what_waited() -> None:
    """The worker stands still, so item() is sure to wait; what it had computed is readable."""
    code = """
        import gt
        x = gt.ones(3)
        print(x.sum().item())
        (worker,) = workers()
        os.kill(worker, signal.SIGSTOP)
        kept = [x + i for i in range(100)]
        reading = []
        interrupt_when(lambda: reading)
        try:
            reading.append(True)
            kept[-1].sum().item()
        except KeyboardInterrupt:
            print("interrupted")
        os.kill(worker, signal.SIGCONT)
        def fits(one, expected):
            try:
                return one.tolist() == expected
            except gt.CancelledError:
                return True
        print(all(fits(one, [1.0 + i] * 3) for i, one in enumerate(kept)), x.tolist())
        print((x + 1).tolist())
    """
    assert run(code) == ["3.0", "interrupted", "True [1.0, 1.0, 1.0]", "[2.0, 2.0, 2.0]"]


def test_an_interrupt_during_slow_work_loses_nothing() -> None:
    """The worker computes on; what it computed can be read."""
    code = """
        import gt
        x = gt.full((512, 512), 1 / 512)
        kept = [x]
        for _ in range(200):
            kept.append(kept[-1] @ x)
        try:
            interrupt_when(lambda: True)
            while True:
                kept[-1].sum().item()
        except KeyboardInterrupt:
            print("interrupted")
        print({round(one[0, 0].item() * 512, 3) for one in kept})
    """
    assert run(code) == ["interrupted", "{1.0}"]


def test_an_interrupt_while_the_ring_is_full_drops_only_what_waited() -> None:
    """The worker stands still until the program is seen to stand still too."""
    code = """
        import gt
        x = gt.ones(3)
        y = x + 1
        print(y.tolist())
        (worker,) = workers()
        os.kill(worker, signal.SIGSTOP)
        count, seen = 0, 0
        def stands():
            global seen
            before, seen = seen, count
            threading.Event().wait(0.1)
            return count == before > 0
        interrupt_when(stands)
        try:
            for count in range(200_000):
                y = y + 1
        except KeyboardInterrupt:
            print("interrupted")
        os.kill(worker, signal.SIGCONT)
        try:
            print(y.tolist() in ([count + 2.0] * 3, [count + 3.0] * 3))
        except gt.CancelledError:
            print(True)
        print(x.tolist(), (x + x - x).tolist())
    """
    lines = ["[2.0, 2.0, 2.0]", "interrupted", "True", "[1.0, 1.0, 1.0] [1.0, 1.0, 1.0]"]
    assert run(code) == lines


def test_a_worker_killed_while_it_starts_is_one_clear_error_at_the_next_read() -> None:
    """It was the only one: what it was to hold and what is new fail, until the next session."""
    code = """
        import gt
        gt.init()
        until(workers)
        os.kill(workers()[0], signal.SIGKILL)
        x = gt.ones(3)
        for read in (x.tolist, lambda: (x + 1).tolist(), lambda: gt.ones(2).tolist()):
            try:
                read()
            except gt.errors.WorkerError as error:
                print(str(error).splitlines()[0])
                last = str(error).splitlines()[-1]
        print(last)
        gt.disconnect()
        print(gt.ones(2).tolist())
    """
    none = "no worker is connected to the dispatcher"
    advice = "  gt.disconnect() ends the session; the next operation starts a worker"
    lines = run(code)
    assert lines[2:] == [none, advice, "[1.0, 1.0]"]
    gone = "worker 0 is gone (its process was ended by signal 9, SIGKILL) and held this value"
    assert set(lines[:2]) <= {gone, none}


def test_one_of_two_workers_killed_takes_nothing_along() -> None:
    """Whole values, shards and values elsewhere are as before; new work runs on both again."""
    code = """
        import gt
        gt.gpu_workers(2)
        whole = gt.distribute(gt.arange(4.0))
        cut = gt.distribute(gt.arange(4.0), 0)
        alone = gt.ones(2)
        print(whole.tolist(), cut.tolist(), alone.tolist())
        os.kill(max(workers()), signal.SIGKILL)
        print(whole.tolist(), cut.tolist(), alone.tolist())
        print(gt.distribute(gt.arange(6.0), 0).sum().item(), (alone + 1).tolist())
        print(gt.debug.stats()["workers"])
    """
    values = "[0.0, 1.0, 2.0, 3.0] [0.0, 1.0, 2.0, 3.0] [1.0, 1.0]"
    assert run(code) == [values, values, "15.0 [2.0, 2.0]", "2"]
