"""A worker whose process is stopped (SIGSTOP, a debugger) is named; nothing else waits for it.

It is not dead: after SIGCONT every program goes on, with the right numbers.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from cluster import Cluster, first_line, result

SILENT = (
    r"gt: worker 0 \(process {pid}\) has not answered since \d\d:\d\d:\d\d UTC,"
    r" for a signal has stopped it"
)
WAIT_SECONDS = 60.0


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(2) as cluster:
        cluster.wait_for_workers()
        yield cluster


@contextlib.contextmanager
def stopped(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def process_of(cluster: Cluster, worker: int) -> int:
    return int(re.search(rf'worker {worker} \("worker (\d+)"\)', cluster.log)[1])


# Each prints "ready", waits for a line of input, and then asks in its last line but one.
ASKS = {
    "read": ("x = gt.arange(5)", "v = (x * 2).tolist()", "[0, 2, 4, 6, 8]", "a read of i64[5]"),
    "item": ("x = gt.arange(5)", "v = x.sum().item()", "10", "a read of i64[]"),
    "synchronize": ("x = gt.ones(2) + 1", "v = gt.synchronize()", "None", "a synchronize"),
    "uploaded": ("x = gt.tensor([1.5])", "v = x.numpy()[0]", "1.5", "a read of f32[1]"),
    "spread": (
        "x = gt.distribute(gt.arange(6), dim=0)",
        "v = x.tolist()",
        "[0, 1, 2, 3, 4, 5]",
        "a read of i64[6]",
    ),
    "spread_sum": (
        "x = gt.distribute(gt.arange(6), dim=0)",
        "v = x.sum().item()",
        "15",
        "a read of i64[]",
    ),
}


def client_on(cluster: Cluster, worker: int, make: str, ask: str) -> "subprocess.Popen[str]":
    """A program that has made `x` there, and asks when it is sent a line."""
    code = f"import sys\n{make}\nx.tolist()\nprint(x.layout, flush=True)\n"
    code += f"sys.stdin.readline()\n{ask}\nprint(v, flush=True)"
    others = []
    for _ in range(2):  # sessions make their tensors on the two workers in turn
        client = cluster.client(code)
        if str(worker) in first_line(client).split("@")[1]:
            break
        others.append(client)
    for other in others:
        other.kill()
    return client


def go_on(client: "subprocess.Popen[str]") -> None:
    client.stdin.write("\n")
    client.stdin.flush()


@pytest.mark.parametrize("name", ASKS)
def test_a_wait_names_the_stopped_worker_and_goes_on(shared: Cluster, name: str) -> None:
    make, ask, value, question = ASKS[name]
    client = client_on(shared, 0, make, ask)
    process = process_of(shared, 0)
    with stopped(process):
        go_on(client)
        line = client.stderr.readline()
        assert re.match(SILENT.format(pid=process), line), line
        assert line.endswith(f"`kill -CONT {process}`; {question} at <string>:8 waits for it\n")
    printed, errors = client.communicate(timeout=WAIT_SECONDS)
    assert printed == f"{value}\n"
    told = rf"gt: the answer has come after \d+ s: worker 0 \(process {process}\)\n"
    assert re.fullmatch(told, errors)


def test_a_session_on_the_other_worker_does_not_wait(shared: Cluster) -> None:
    ask = "gt.synchronize(); v = [(x * 2).tolist(), (x @ x).item(), gt.arange(3).tolist()]"
    client = client_on(shared, 1, "x = gt.arange(5)", ask)
    with stopped(process_of(shared, 0)):
        go_on(client)
        printed, errors = client.communicate(timeout=WAIT_SECONDS)
    assert (printed, errors) == ("[[0, 2, 4, 6, 8], 30, [0, 1, 2]]\n", "")


def test_counters_come_without_the_stopped_worker(shared: Cluster) -> None:
    ask = "v = [row.get('values', sorted(row)) for row in gt.debug.get_worker_stats()]"
    client = client_on(shared, 1, "x = gt.arange(5)", ask)
    process = process_of(shared, 0)
    with stopped(process):
        go_on(client)
        assert result(client) == "[['is_silent', 'worker'], 1]\n"
    assert "is_silent" not in shared.run("print(gt.debug.get_worker_stats())")


def test_top_shows_who_does_not_answer(shared: Cluster) -> None:
    command = [sys.executable, "-m", "gt", "top", "--once", shared.address]
    with stopped(process_of(shared, 0)):
        run = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS)
        rows = subprocess.run([*command, "--json"], capture_output=True, timeout=WAIT_SECONDS)
    assert (run.returncode, run.stderr) == (0, "")
    _, names, first, second = run.stdout.splitlines()
    assert re.fullmatch(r" +0  no answer yet: busy, or stopped", first)
    assert len(second.split()) >= len(names.split()) > 10
    workers = json.loads(rows.stdout)["workers"]
    assert workers[0] == {"worker": 0, "is_silent": True}
    assert workers[1]["executed"] > 0


EMBEDDED = """
import os, signal, sys
import gt
x = gt.arange(4)
x.tolist()
children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
assert len(children) == 1, children
print(children[0], flush=True)
sys.stdin.readline()
print((x + 1).tolist())
"""


def test_a_program_with_its_own_worker() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", EMBEDDED],
        env=os.environ | {"GT_BACKEND": "numpy", "GT_WORKERS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process = int(first_line(program))
    with stopped(process):
        go_on(program)
        line = program.stderr.readline()
        assert re.match(SILENT.format(pid=process), line), line
        assert line.endswith("; a read of i64[4] at <string>:10 waits for it\n")
    assert program.communicate(timeout=WAIT_SECONDS)[0] == "[1, 2, 3, 4]\n"


def test_a_worker_that_computes_is_left_in_peace(shared: Cluster) -> None:
    """It computes for seven seconds of its own clock, longer than a stopped one is waited for."""
    ask = "r = gt.ones(300, 300)\nfor _ in range(2000): r = (r @ r).tanh()\nv = r.sum().item()"
    client = client_on(shared, 0, "x = gt.arange(5)", ask)
    go_on(client)
    printed, errors = client.communicate(timeout=WAIT_SECONDS)
    assert (printed, errors) == ("90000.0\n", "")
