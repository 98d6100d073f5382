"""`python hosts.py`: a sum over workers that share no memory, beside Gloo.

The workers stay on TCP (`--tcp`), as workers of several hosts do; Gloo's processes use the same
loopback. GT's figure is the time of a sum of chunks less the time of the chunks alone: each round
measures both, then Gloo. With `--groups` GT's workers also exchange in Gloo's groups, for
information: the figures then show GT's overhead over Gloo.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from members import TorchProcesses
from pairs import TIMES, load, on_cores, threads
from processes import cluster
from results import note, write

import gt

BEGIN = "<!-- hosts: hosts.py writes from here -->"
END = "<!-- hosts: to here -->"
SIZES = [1_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000, 64_000_000]
HEAD = ["all_reduce over TCP", "bytes", "GT, µs", "Gloo, µs", "ratio"]


GROUPS = ["--process-groups", "gloo", "--trusted-network", "127.0.0.0/8"]


@contextmanager
def both(count: int, words: list[str]) -> Iterator[TorchProcesses]:
    """GT's session over `count` workers, and an equal number of Gloo processes."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        gt.connect(stack.enter_context(cluster(count, "--tcp", *words)))
        stack.callback(gt.disconnect)
        while gt.debug.stats()["workers"] < count:
            time.sleep(0.05)
        gloo = TorchProcesses("gloo", count, str(Path(folder) / "store"))
        stack.callback(gloo.end)
        yield gloo


def sums(x: gt.Tensor, repeats: int, reduce: bool) -> float:
    """Seconds for one sum of the shards of x: reduced, or left as a contribution on each worker."""
    gt.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        total = x.sum(0)
        if reduce:
            gt.distributed.all_reduce(total)
    gt.synchronize()
    return (time.perf_counter() - start) / repeats


def compare(gloo: TorchProcesses, size: int, rounds: int) -> list[str]:
    """One line of the table."""
    repeats = max(2, min(100, 32_000_000 // size))
    x = gt.distribute(gt.ones(gloo.count, size // 4), dim=0)
    sums(x, 2, reduce=True)
    pairs = []
    for _ in range(rounds):
        alone = sums(x, repeats, reduce=False)
        reduced = sums(x, repeats, reduce=True)
        pairs.append((reduced - alone, gloo.round("all_reduce", size, repeats)))
    ours, theirs = (statistics.median(side) * 1e6 for side in zip(*pairs, strict=True))
    ratio = f"{ours / theirs:.3g} {TIMES}"
    return [f"{gloo.count} processes", f"{size:,}", f"{ours:.4g}", f"{theirs:.4g}", ratio]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments.add_argument("--markdown", action="store_true", help="write the table to RESULTS.md")
    arguments.add_argument("--groups", action="store_true", help="workers meet in Gloo's groups")
    given = arguments.parse_args()
    if given.groups and given.markdown:
        arguments.error("what is written are the figures of GT's own way")
    lines = []
    before = load()
    with on_cores(), threads(1), both(2, GROUPS if given.groups else []) as gloo:
        for size in given.sizes:
            lines.append(compare(gloo, size, given.rounds))
            print("  ".join(cell.ljust(14) for cell in lines[-1]), flush=True)
    if given.markdown:
        said = note("python hosts.py --markdown", before)
        write(lines, said, HEAD, (BEGIN, END))


if __name__ == "__main__":
    main()
