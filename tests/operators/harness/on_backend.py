"""A program: runs float samples of every entry on a worker of the backend in the first argument.

The native backend runs all of them. The numpy backend leaves out what the native one computes by
the same numpy function: entries whose row has no kernel of the native backend's own, and refusals
of operators without a row. Prints the findings as JSON.
"""

import json
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
os.environ["GT_BACKEND"] = sys.argv[1]

import torch  # noqa: E402 - after the path
from torch.testing._internal.opinfo.core import OpInfo  # noqa: E402

from gt.worker.native.kernels import QUICK  # noqa: E402
from harness.drive import values  # noqa: E402
from harness.entries import ROWS, entries, is_generic, row_of  # noqa: E402
from harness.outcome import Outcome  # noqa: E402

# numpy sums, multiplies and rounds in another order, by other polynomials.
LOOSER = {torch.float32: 30.0, torch.float64: 30.0}
# Refusal of operators without a row.
NEEDS_TORCH = "needs a worker with torch"
PRODUCT = 81.0  # of two values of a sample, at the most: they are summed in another order


def runs(op: OpInfo) -> bool:
    """True where the numpy backend may compute an entry in another way than the native one."""
    return not is_generic(op) and row_of(op) in (None, *QUICK)


def main() -> None:
    torch.set_num_threads(1)
    outcome = Outcome()
    chosen = filter(runs, entries()) if sys.argv[1] == "numpy" else entries()
    for op in chosen:
        for dtype, looser in LOOSER.items():
            if dtype in op.supported_dtypes("cpu"):
                row = row_of(op)
                terms = PRODUCT if row and ROWS[row]["family"] == "contract" else 1.0
                outcome.add(values(op, dtype, looser=looser, terms=terms))
    needs_torch = sum(n for text, n in outcome.refused.items() if NEEDS_TORCH in text)
    counts = {"total": outcome.total - needs_torch, "ran": outcome.ran, "wrong": outcome.wrong}
    json.dump(counts | {"refused": dict(outcome.refused)}, sys.stdout)


if __name__ == "__main__":
    main()
