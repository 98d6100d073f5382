"""`python collectives.py`: collectives between the workers of one host, beside Gloo.

Both systems have equal numbers of processes and run the same collectives in turn, round after round
(members.py). The table shows medians and their ratio. With four members the machine has fewer cores
than processes, and it may be shared: the load is stated above the table.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from members import KINDS, TorchProcesses, Workers
from pairs import TIMES, load, on_cores, threads
from results import note, write
from worker_words import op

BEGIN = "<!-- collectives: collectives.py writes from here -->"
END = "<!-- collectives: to here -->"
SIZES = [1_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000, 64_000_000]
HEAD = ["collective", "processes", "bytes", "GT, µs", "Gloo, µs", "ratio"]


def arguments_of(index: int) -> list[str]:
    """Command-line arguments of a worker."""
    del index
    return ["--threads", "1"]


def behind(kind: str, elements: int) -> list[bytes]:
    """The instructions after each collective."""
    free = op("free", (), (1,))
    if kind == "all_reduce":  # as in Gloo: the result replaces the operand
        return [op("free", (), (0,)), op("reshape", (0,), (1,), ((elements,),)), free]
    return [free]


@contextmanager
def both(count: int) -> Iterator[tuple[Workers, TorchProcesses]]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        workers = Workers(count, arguments_of, behind)
        stack.callback(workers.end)
        gloo = TorchProcesses("gloo", count, str(Path(folder) / "store"))
        stack.callback(gloo.end)
        yield workers, gloo


def compare(workers: Workers, gloo: TorchProcesses, kind: str, size: int, rounds: int) -> list[str]:
    """One line of the table, in microseconds."""
    repeats = max(2, min(100, 8_000_000 // size))
    pairs: list[tuple[float, float]] = []
    for turn in range(rounds + 1):  # the first round is a warm-up
        if turn % 2:
            ours = workers.round(kind, size, repeats)
            pairs.append((ours, gloo.round(kind, size, repeats)))
        else:
            theirs = gloo.round(kind, size, repeats)
            pairs.append((workers.round(kind, size, repeats), theirs))
    ours, theirs = (statistics.median(side) * 1e6 for side in zip(*pairs[1:], strict=True))
    count = len(workers.connections)
    cells = [kind, str(count), f"{size:,}", f"{ours:.4g}", f"{theirs:.4g}"]
    return [*cells, f"{ours / theirs:.3g} {TIMES}"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    arguments.add_argument("--markdown", action="store_true", help="write the table to RESULTS.md")
    given = arguments.parse_args()
    lines: list[list[str]] = []
    before = load()
    with on_cores(), threads(1):
        for count in given.processes:
            with both(count) as (workers, gloo):
                for kind in KINDS:
                    for size in given.sizes:
                        lines.append(compare(workers, gloo, kind, size, given.rounds))
                        print("  ".join(cell.ljust(14) for cell in lines[-1]), flush=True)
    if given.markdown:
        said = note("python collectives.py --markdown", before)
        write(lines, said, HEAD, (BEGIN, END))


if __name__ == "__main__":
    main()
