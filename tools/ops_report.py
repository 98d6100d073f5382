"""Run PyTorch's samples of every operator and write tests/harness/results.json.

    CUDA_VISIBLE_DEVICES= python tools/ops_report.py && python tools/gen.py

docs/ops.md is made from it. It writes nothing where a result is wrong. Needs torch, but no GPU:
op_db's oracle computes on the CPU, and so must the worker. Takes about a minute.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]


def main() -> int:
    import torch
    from harness.drive import drive
    from harness.entries import entries, title
    from harness.report import RESULTS, record, write

    if torch.cuda.is_available():
        sys.exit("set CUDA_VISIBLE_DEVICES= : the oracle computes on the CPU")
    torch.set_num_threads(1)
    table: dict[str, object] = {}
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


if __name__ == "__main__":
    sys.exit(main())
