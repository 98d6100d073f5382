"""Kernels of gt._kernels on numpy's arrays, by their one entry (csrc/table).

A kernel says itself which calls it takes; numpy computes the others.
"""

from __future__ import annotations

import numpy as np

from gt import _kernels
from gt.worker.backend import Kernel
from gt.worker.native import threads as native_threads
from gt.worker.reference.kernels import NUMPY
from gt.worker.reference.values import Array


def _empty(dtype: str, sizes: tuple[int, ...]) -> Array:
    # numpy has no bfloat16: its uint16 arrays stand for the bits.
    return np.empty(sizes, "uint16" if dtype == "bfloat16" else dtype)


def run(kernel: str, *arguments: object, takes_all: bool = False) -> tuple[Array, ...] | None:
    """The results of a kernel; None where numpy is to compute the call.

    Args:
        kernel: A name in csrc/table.
        arguments: Arrays, numbers, tuples of integers, names of dtypes, or None.
        takes_all: Also calls for which PyTorch's kernels are faster.
    """
    threads = native_threads.count()
    results: tuple[Array, ...] | None = _kernels.run(
        kernel, arguments, _empty, threads, threads, takes_all
    )
    return results


def of_row(row: str) -> Kernel:
    """A row by the kernel of its name, or by numpy."""
    otherwise = NUMPY[row]

    def kernel(*operands: object) -> object:
        results = run(row, *operands)
        if results is None:
            return otherwise(*operands)
        return results[0] if len(results) == 1 else results

    return kernel
