"""Several users on one worker take turns by time: nobody waits for somebody else's whole queue.

Each queue here takes minutes, longer than a test may: who waits for it fails by the time limit.
"""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from cluster import Cluster, until

import gt

PRODUCTS = 4000  # of 1000 by 1000: some 50 ms each on one core
SIZE = 1000
SHORT = 20  # of a second queue, which is a second of work
QUEUE = f"""
import sys
x = gt.ones({SIZE}, {SIZE})
x.sum().item()
for _ in range({PRODUCTS}):
    x @ x
print("queued", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """One worker, on which a first client has queued minutes of work."""
    with Cluster(1) as running:
        running.wait_for_workers()
        yield running
        gt.disconnect()


def queueing_client(cluster: Cluster) -> "subprocess.Popen[str]":
    client = cluster.client(QUEUE)
    assert client.stdout is not None
    assert client.stdout.readline() == "queued\n"
    return client


def counted(name: str) -> float:
    """A counter of the worker, over all its clients."""
    (stats,) = gt.debug.get_worker_stats()
    return stats[name]


def test_a_read_beside_a_queue(cluster: Cluster) -> None:
    queueing_client(cluster)
    gt.connect(cluster.address)
    x = gt.arange(5.0)
    assert [(x * n).sum().item() for n in range(20)] == [10.0 * n for n in range(20)]
    assert counted("executed") < PRODUCTS


def test_a_long_program_beside_a_queue(cluster: Cluster) -> None:
    queueing_client(cluster)
    gt.connect(cluster.address)
    w = gt.full((64, 64), 1.0 / 64)
    x = gt.ones(64, 64)
    for _ in range(200):
        x = x @ w
    assert x.sum().item() == pytest.approx(64 * 64)
    assert counted("executed") < PRODUCTS


def test_a_killed_clients_queue_is_dropped(cluster: Cluster) -> None:
    client = queueing_client(cluster)
    gt.connect(cluster.address)
    kept = gt.arange(5.0)
    client.kill()
    client.wait()
    until(lambda: counted("bytes") < SIZE * SIZE * 4)  # its own are freed
    assert kept.sum().item() == 10.0
    assert counted("executed") < PRODUCTS


def test_gt_top_beside_a_queue(cluster: Cluster) -> None:
    queueing_client(cluster)
    command = [sys.executable, "-m", "gt", "top", "--once", cluster.address]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "worker" in shown.stdout


def test_two_queues_share_the_worker(cluster: Cluster) -> None:
    queueing_client(cluster)
    gt.connect(cluster.address)
    x = gt.ones(SIZE, SIZE)
    before = counted("executed")
    for _ in range(SHORT - 1):
        x @ x
    assert (x @ x).sum().item() == SIZE**3
    # Three for each product and each turn: whose it is, the product, the free of its result.
    assert counted("executed") - before < 10 * SHORT
