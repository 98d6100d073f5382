"""Ctrl-C and `gt.cancel()` drop the queue of one session, and nothing else.

Each queue here takes minutes, longer than a test may: who waits for it fails by the time limit.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import worker_forks
from cluster import TESTS, Cluster, first_line, result

import gt

WAIT_SECONDS = 45.0  # on a busy machine; each queue takes longer
PRODUCTS = 2500  # of 1000 by 1000: some 50 ms each on one core
SIZE = 1000
# Those over two workers take more words: so many fit the queue, and take some 200 ms each.
SPREAD_PRODUCTS, SPREAD_SIZE = 400, 2000
START = """
import os, signal, sys, threading, _thread
kept = gt.arange(5.0)
assert kept.sum().item() == 10.0
x = gt.full((SIZE, SIZE), 1.0 / SIZE)
LAYOUT
x.sum().item()
def queue():
    y = x
    for _ in range(PRODUCTS):
        y = y @ x
    return y
def interrupted(wait, kill):
    try:
        kill()
        wait()
    except KeyboardInterrupt:
        return
    raise SystemExit("no KeyboardInterrupt")
def lost(value):
    try:
        value.sum().item()
    except gt.CancelledError as error:
        return str(error)
    raise SystemExit("the value is there")
dropped = queue()
after = dropped + 1
"""
END = """
assert kept.sum().item() == 10.0
assert (gt.ones(3) * 2).sum().item() == 6.0
assert abs(x.sum().item() - x.shape[0]) < 1
assert abs((x @ x).sum().item() - x.shape[0]) < 1
print(lost(dropped), lost(after), lost(dropped * 2), sep="|")
"""
KILLED = """
# The main thread is in its read by then.
threading.Timer(0.3, print, ["ready"], {"flush": True}).start()
try:
    dropped.sum().item()
except KeyboardInterrupt:
    pass
"""
WAYS = {
    "called": "gt.cancel()",
    "called_twice": "gt.cancel(); dropped = queue(); after = dropped + 1; gt.cancel()",
    "raised_in_a_read": (
        "interrupted(lambda: dropped.sum().item(), threading.Timer("
        "0.2, signal.raise_signal, [signal.SIGINT]).start)"
    ),
    "interrupted_in_synchronize": (
        "interrupted(gt.synchronize, threading.Timer(0.2, _thread.interrupt_main).start)"
    ),
    "interrupted_in_a_full_queue": (
        "interrupted(lambda: [queue() for _ in range(20)], "
        "threading.Timer(1.0, _thread.interrupt_main).start)"
    ),
    "called_beside_a_read": (
        "threading.Timer(0.2, gt.cancel).start(); print(lost(dropped), end='|')"
    ),
    "killed": KILLED,
}


@pytest.fixture(scope="module", params=[1, 2])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(request.param) as running:
        running.wait_for_workers()
        yield running


def start(workers: int) -> str:
    """The program up to its queue."""
    layout, size, products = "", SIZE, PRODUCTS
    if workers > 1:
        layout, size, products = "x = gt.distribute(x, dim=0)", SPREAD_SIZE, SPREAD_PRODUCTS
    numbers = START.replace("SIZE", str(size)).replace("PRODUCTS", str(products))
    return numbers.replace("LAYOUT", layout)


def program(way: str, workers: int) -> str:
    return f"{start(workers)}\n{WAYS[way]}\n{END}"


def started(code: str, workers: int) -> "subprocess.Popen[str]":
    """A program with workers of its own."""
    path = os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", f"import gt\ngt.gpu_workers({workers})\n{code}"],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check(client: "subprocess.Popen[str]", way: str) -> None:
    """The program ends, with errors that name the first dropped product and the user's line."""
    if way == "killed":
        first_line(client)
        client.send_signal(signal.SIGINT)
    texts = result(client, WAIT_SECONDS).strip().split("|")
    product = r"matmul f32\[(\d+),\1\] f32\[\1,\1\]"
    for text in texts:
        lines = text.splitlines()
        assert re.fullmatch(
            rf"cancelled before it ran, by Ctrl-C or gt\.cancel\(\); {product}", lines[0]
        )
        assert re.fullmatch(r"  in `matmul`, called at <string>:\d+", lines[1])
    assert len(set(texts)) == 1, "all depend on the same product"


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_with_workers_of_its_own(way: str, workers: int) -> None:
    client = started(program(way, workers), workers)
    try:
        check(client, way)
    finally:
        client.kill()
        client.communicate()


# Over TCP no queue is full here: 16 MiB of words fit.
LINKS = [("rings", way) for way in WAYS] + [
    ("tcp", way) for way in WAYS if way != "interrupted_in_a_full_queue"
]


@pytest.mark.parametrize(("link", "way"), LINKS)
def test_with_a_dispatcher(cluster: Cluster, link: str, way: str) -> None:
    code = program(way, len(cluster.workers))
    check(cluster.client(code, GT_NO_RING="1" if link == "tcp" else "0"), way)


def test_another_session_loses_nothing(cluster: Cluster) -> None:
    client = cluster.client(program("killed", len(cluster.workers)))
    first_line(client)
    gt.connect(cluster.address)
    x = gt.arange(5.0)
    w = gt.full((64, 64), 1.0 / 64)
    y = gt.ones(64, 64)
    for _ in range(200):
        y = y @ w
    client.send_signal(signal.SIGINT)
    assert [(x * n).sum().item() for n in range(20)] == [10.0 * n for n in range(20)]
    assert y.sum().item() == pytest.approx(64 * 64)
    assert "cancelled before it ran" in result(client)
    gt.disconnect()


STEP = f"""
import sys
gt.manual_seed(0)
model = gt.nn.Linear({SIZE}, {SIZE})
optimizer = gt.optim.OPTIMIZER(model.parameters(), lr=1e-5)
x = gt.ones({SIZE}, {SIZE})
def step():
    loss = (model(x) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
first = step().item()
for _ in range(200):
    last = step()
gt.cancel()
values = [p.sum().item() for p in model.parameters()]
kept = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, gt.Tensor)]
state = [v.sum().item() for v in kept]
assert all(abs(v) < 1e9 for v in values + state)
try:
    last.item()
except gt.CancelledError as error:
    print("lost")
assert step().item() < first
print("goes on")
"""


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_parameters_keep_what_their_last_step_left(cluster: Cluster, optimizer: str) -> None:
    code = STEP.replace("OPTIMIZER", optimizer)
    assert result(cluster.client(code)) == "lost\ngoes on\n"
    client = started(code, len(cluster.workers))
    try:
        assert result(client) == "lost\ngoes on\n"
    finally:
        client.kill()
        client.communicate()


STOPPED = """
import os, signal, threading, _thread
x = gt.ones(3)
x.sum().item()
os.kill(WORKER, signal.SIGSTOP)
y = x + 1
def interrupt():
    _thread.interrupt_main()
    os.kill(WORKER, signal.SIGCONT)
threading.Timer(0.2, interrupt).start()
try:
    y.sum().item()
except KeyboardInterrupt:
    print("interrupted")
print(y.sum().item())
"""


def test_a_read_that_needs_little_more_is_interrupted_and_loses_nothing() -> None:
    with Cluster(1) as running:
        running.wait_for_workers()
        stopped = worker_forks.number(running.workers[0].pid)
        code = STOPPED.replace("WORKER", str(stopped))
        assert running.run(code) == "interrupted\n6.0\n"


def test_what_a_worker_dropped_was_not_executed() -> None:
    code = start(1) + (
        "gt.cancel()\nassert kept.sum().item() == 10.0\n"
        "(stats,) = gt.debug.get_worker_stats()\nprint(stats['executed'])\n"
    )
    client = started(code, 1)
    try:
        # Frees are executed too.
        assert int(result(client)) < 1.5 * PRODUCTS
    finally:
        client.kill()
        client.communicate()


def test_nothing_to_cancel() -> None:
    gt.cancel()
    x = gt.ones(3)
    assert x.sum().item() == 3.0
    gt.cancel()
    assert (x + x).sum().item() == 6.0
