"""The end of a program: its handlers still find their tensors, and its threads tell no tales.

Each case is a program in a process of its own, with numpy workers.
"""

import os
import subprocess
import sys

import pytest
from cluster import Cluster

RUN_SECONDS = 50.0
USE = "print((kept * 2).tolist(), gt.ones(2).sum().item(), flush=True)"
USED = "[2.0, 4.0] 2.0\n"
HANDLER = f"""
import atexit
def use():
    import gt
    {USE}
    {{more}}
"""
LOST = "gt.zeros(2).gather(0, gt.tensor([4]))"
THREAD = """
import threading
import gt
kept = gt.ones(2)
begun = threading.Event()
def loop():
    while True:
        {work}
        begun.set()
threading.Thread(target=loop, daemon=True).start()
begun.wait()
"""


def end(code: str) -> tuple[str, str]:
    """Standard output and error of a program, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"GT_BACKEND": "numpy", "GT_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    "lines",
    [
        ["atexit.register(use)", "import gt", "kept = gt.tensor([1.0, 2.0])"],
        ["import gt", "atexit.register(use)", "kept = gt.tensor([1.0, 2.0])"],
        ["import gt", "kept = gt.tensor([1.0, 2.0])", "atexit.register(use)"],
    ],
    ids=["before the import", "before the first operation", "after it"],
)
def test_a_handler_uses_tensors(lines: list[str]) -> None:
    assert end("\n".join([HANDLER.format(more=""), *lines])) == (USED, "")


def test_a_handler_uses_tensors_of_a_dispatcher_elsewhere() -> None:
    with Cluster(1) as cluster:
        connect = f"import gt\ngt.connect({cluster.address!r})\nkept = gt.tensor([1.0, 2.0])"
        code = "\n".join([HANDLER.format(more=""), "atexit.register(use)", connect])
        assert end(code) == (USED, "")


def test_a_handler_that_is_the_first_to_compute() -> None:
    code = "import atexit\natexit.register(lambda: print(gt.ones(2).tolist()))\nimport gt"
    assert end(code) == ("[1.0, 1.0]\n", "")


def test_a_handlers_own_failure_is_printed_too() -> None:
    code = f"{HANDLER.format(more=LOST)}\natexit.register(use)\nimport gt\nkept = gt.arange(1.0, 3)"
    printed, said = end(code)
    assert printed == USED
    assert said.startswith("gt: a failure that nobody has read:\nindex 4 is out of bounds")
    assert said.count("nobody has read") == 1


def test_failures_are_told_once_and_before_handlers_of_others() -> None:
    code = f"""
import atexit, os
atexit.register(lambda: os.write(2, b"handler\\n"))
import gt
a = {LOST}
"""
    said = end(code)[1]
    assert said.count("nobody has read") == 1
    assert said.endswith("handler\n")


@pytest.mark.parametrize(
    "work",
    [
        "gt.ones(2).sum().item()",
        "(kept * 2).tolist()",
        "kept.tolist()",
        "kept + 1",
        "gt.synchronize()",
        "kept.layout",
        "gt.ones(1 << 16).tolist()",
    ],
)
def test_a_daemon_thread_says_nothing(work: str) -> None:
    for _ in range(3):
        assert end(THREAD.format(work=work)) == ("", "")


def test_several_daemon_threads_and_a_handler() -> None:
    threads = "".join("threading.Thread(target=loop, daemon=True).start()\n" for _ in range(4))
    code = f"""
{HANDLER.format(more="")}
atexit.register(use)
{THREAD.format(work="gt.ones(2).sum().item()")}
kept = gt.tensor([1.0, 2.0])
{threads}
"""
    assert end(code) == (USED, "")


def test_a_session_begins_again_after_handlers_that_ran_early() -> None:
    code = """
import atexit
import gt
print(gt.ones(1).tolist())
atexit._run_exitfuncs()
print(gt.is_connected(), gt.ones(2).tolist())
"""
    assert end(code) == ("[1.0]\nFalse [1.0, 1.0]\n", "")
