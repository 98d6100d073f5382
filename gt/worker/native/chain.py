"""Chains of elementwise rows in one pass over memory, for the native backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gt import _kernels
from gt.worker.native import threads
from gt.worker.native.values import BOOL, FLOAT32, POWERS, is_float32
from gt.worker.reference.values import Array

# A row and its operands; None: the result of the step before.
Step = tuple[str, Sequence[object]]

_ROWS = frozenset(_kernels.chain_rows())


def run(steps: Sequence[Step], reuse: int) -> tuple[int, Array] | None:
    """Number of steps behind the first that have run with it, at least one, and the last result.

    Args:
        steps: The instructions.
        reuse: Operands of the first one, a bit each, whose memory may become the result's.
    """
    taken = list(_taken(steps))
    arrays = [one for one in steps[0][1] if isinstance(one, np.ndarray)]
    if len(taken) < 2 or not any(map(is_float32, arrays)):
        return None
    size = max(arrays, key=lambda one: (one.size, one.ndim)).shape
    out = next((one for one in _reusable(steps[0][1], reuse) if one.shape == size), None)
    if out is None:
        out = np.empty(size, FLOAT32)
    ran = _kernels.fitting_chain(out, taken, 2, threads.count())
    return (ran - 1, out) if ran else None


def _reusable(operands: Sequence[object], reuse: int) -> Iterator[Array]:
    for place, one in enumerate(operands):
        if reuse >> place & 1 and is_float32(one) and one.flags.writeable:
            yield one


def _taken(steps: Sequence[Step]) -> Iterator[tuple[object, ...]]:
    """The steps that the kernel has, up to the first that it lacks, as it takes them."""
    for row, operands in steps:
        name, arguments = row, tuple(operands)
        if row == "pow":
            base, exponent = operands
            if not isinstance(exponent, int | float) or exponent not in POWERS:
                return
            name, arguments = POWERS[exponent], (base,)
        if row == "masked_fill":
            name, arguments = "where", (operands[1], operands[2], operands[0])
        if name not in _ROWS or not all(map(_is_taken, arguments)):
            return
        yield (name, *arguments)


def _is_taken(operand: object) -> bool:
    if type(operand) is np.ndarray:
        return operand.dtype in (FLOAT32, BOOL)
    return operand is None or type(operand) in (int, float)
