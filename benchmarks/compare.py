"""`python compare.py`: GT beside PyTorch, row by row, with ratio and target.

Each row gives medians of interleaved rounds on two cores, once with default settings and once with
one computing thread a side; see docs/decisions/benchmarks.md. No figure is judged: the exit code is
always 0.
"""

from __future__ import annotations

import argparse
import sys

from pairs import CORES, TIMES, Result, Row, load, machine, measure, on_cores, threads
from results import RESULTS, note, write
from rows import ROWS

BEGIN, END = "<!-- table: compare.py writes from here -->", "<!-- to here -->"


def _cells(default: Result, single: Result) -> list[str]:
    row = default.row
    met = ["yes" if row.target.is_met(result) else "no" for result in (default, single)]
    return [
        row.what,
        row.unit,
        *_figures(default),
        *_figures(single),
        row.target.text(row.unit),
        " / ".join(met),
        f"{max(default.spread, single.spread):.0%}",
    ]


def _figures(result: Result) -> list[str]:
    row = result.row
    other = f"{result.other:.4g}" if row.other == "torch" else f"{result.other:.4g} ({row.other})"
    return [f"{result.gt:.4g}", other, f"{result.ratio:.3g} {TIMES}"]


def _measured(row: Row, rounds: int | None) -> list[str]:
    results = []
    for count in (None, 1):
        with threads(count):
            results.append(measure(row, rounds))
    return _cells(*results)


HEAD = [
    "what",
    "unit",
    *("GT", "PyTorch", "ratio"),
    *("GT, 1 thread", "PyTorch, 1 thread", "ratio"),
    "target",
    "met",
    "spread",
]
ALIGN = ["---"] + ["---:"] * 7 + ["---", "---", "---:"]


def _print(line: list[str]) -> None:
    widths = (48, 4, 9, 24, 8, 12, 24, 8, 10, 9, 6)
    print(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)), flush=True
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="ROW", help=", ".join(row.name for row in ROWS))
    parser.add_argument("--rounds", type=int, metavar="N", help="instead of each row's own number")
    parser.add_argument(
        "--cores", type=int, default=CORES, help=f"of client and worker together; {CORES}"
    )
    parser.add_argument(
        "--markdown", action="store_true", help=f"write the table of {RESULTS.name}"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return arguments


def main() -> None:
    arguments = _arguments()
    chosen = [row for row in ROWS if not arguments.names or row.name in arguments.names]
    with on_cores(arguments.cores):
        before = load()
        print(machine())
        _print(HEAD)
        lines = []
        for row in chosen:
            line = _measured(row, arguments.rounds)
            _print(line)
            lines.append(line)
        command = " ".join(["python compare.py", *sys.argv[1:]])
        said = note(command, before)
    print(said.rsplit("\n", 1)[1])
    if arguments.markdown:
        write(lines, said, HEAD, (BEGIN, END), ALIGN)


if __name__ == "__main__":
    main()
