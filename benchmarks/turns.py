"""A light user's read beside another user's queue of products: `python turns.py`.

Client A sends products without reading, client B reads a small sum again and again. The output has
the percentiles of B's reads in milliseconds, and B's first read after A was killed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from processes import WAIT_SECONDS, cluster, environment

import gt

QUEUES = {1000: 300, 500: 1000, 256: 3000}  # size of the matrices: number of products queued
READS = 100
PAUSE_SECONDS = 0.01
QUEUEING = """
import sys
import gt
gt.connect(sys.argv[1])
size, count = int(sys.argv[2]), int(sys.argv[3])
x = gt.randn(size, size)
y = (x @ x).sum().item()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(count):
    x @ x
print("queued", flush=True)
sys.stdin.readline()
"""


@contextmanager
def queue(address: str, size: int, count: int) -> Iterator[subprocess.Popen[str]]:
    """A client that has sent its products, which are being executed."""
    process = subprocess.Popen(
        [sys.executable, "-c", QUEUEING, address, str(size), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "queued\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=WAIT_SECONDS)


def read_seconds(x: gt.Tensor) -> float:
    """Seconds of a read of a new value."""
    start = time.perf_counter()
    x.sum().item()
    return time.perf_counter() - start


def measure(address: str, size: int, count: int, reads: int = READS) -> list[float]:
    """Milliseconds: p50 and p99 of B's reads beside A's queue, and its first after A's death."""
    x = gt.ones(3)
    read_seconds(x)
    with queue(address, size, count) as process:
        times = []
        for _ in range(reads):
            times.append(read_seconds(x))
            time.sleep(PAUSE_SECONDS)
    process.wait()
    killed = read_seconds(x)
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return [1e3 * one for one in (cuts[49], cuts[98], killed)]


def main() -> None:
    """Measure with each size of products."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(QUEUES))
    parser.add_argument("--reads", type=int, default=READS)
    options = parser.parse_args()
    print("| products of | queued | B's read p50, ms | p99, ms | first after A was killed, ms |")
    print("|---|---:|---:|---:|---:|")
    for size in options.sizes:
        with cluster(1, "--threads", "1") as address:
            gt.connect(address)
            try:
                count = QUEUES.get(size, 1000)
                p50, p99, killed = measure(address, size, count, options.reads)
            finally:
                gt.disconnect()
        print(f"| {size}² | {count} | {p50:.2f} | {p99:.2f} | {killed:.2f} |", flush=True)


if __name__ == "__main__":
    main()
