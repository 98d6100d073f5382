"""Run PyTorch's samples of every operator and write tests/operators/harness/results.json.

    CUDA_VISIBLE_DEVICES= python tools/ops_report.py && python tools/gen.py

docs/ops.md is generated from it. Nothing is written where a result is wrong. Needs torch, but no
GPU: op_db's oracle computes on the CPU, and so must the worker. Takes about a minute.

With names (of entries, of functions or of rows of ops.toml) it runs only their samples, prints the
result of each, and writes nothing.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/operators"), str(ROOT)]

if TYPE_CHECKING:
    from harness.outcome import Outcome
    from torch.testing._internal.opinfo.core import OpInfo


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", metavar="NAME", nargs="*", help="print how these fare, only")
    names = parser.parse_args().names
    if torch.cuda.is_available():
        sys.exit("set CUDA_VISIBLE_DEVICES= : the oracle computes on the CPU")
    torch.set_num_threads(1)
    return print_some(names) if names else write_all()


def write_all() -> int:
    from harness.drive import drive
    from harness.entries import entries, title
    from harness.report import RESULTS, record, write

    table: dict[str, dict[str, object]] = {}
    wrong: list[str] = []
    for op in entries():
        result = drive(op)
        table[title(op)] = record(op, result)
        wrong.extend(line for outcome in result.values() for line in outcome.wrong)
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    write(table)
    print(f"wrote {RESULTS.relative_to(ROOT)}: {len(table)} entries")
    return 0


def print_some(names: list[str]) -> int:
    """Print the entries of each name. Returns 1 where one is wrong, 2 for a name without any."""
    from harness.drive import drive
    from harness.entries import title

    found = {name: entries_of(name) for name in names}
    for name in (name for name, entries in found.items() if not entries):
        print(f"{name}: GT runs no entry of PyTorch's op_db of this name", file=sys.stderr)
    worst = 0 if all(found.values()) else 2
    for op in {title(op): op for entries in found.values() for op in entries}.values():
        result = drive(op)
        print("\n".join(lines(op, result)))
        worst = max(worst, any(outcome.wrong for outcome in result.values()))
    return worst


def entries_of(name: str) -> "list[OpInfo]":
    """Entries whose title, function (whole or its last part) or row is `name`."""
    from harness.entries import entries, row_of, title

    return [
        op
        for op in entries()
        if name in (title(op), op.name, op.name.rpartition(".")[2], row_of(op))
    ]


def lines(op: "OpInfo", result: "dict[str, Outcome]") -> list[str]:
    """Lines on an entry: samples passed of all by kind, then refusals by reason, then errors."""
    from harness.entries import row_of, title

    row = row_of(op)
    listed = [f"{title(op)}: " + (f"row {row} of ops.toml" if row else "no row of ops.toml")]
    if not result:
        listed.append("    PyTorch has no samples of dtypes that GT has")
    for kind, outcome in result.items():
        passed = outcome.ran - len(outcome.wrong)
        listed.append(f"    {kind:<10} {passed} of {outcome.total} passed")
        listed += [f"        {n} refused: {reason}" for reason, n in outcome.refused.items()]
        listed += [f"        wrong: {line}" for line in outcome.wrong]
    return listed


if __name__ == "__main__":
    sys.exit(main())
