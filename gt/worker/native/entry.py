"""Kernels of gt._kernels on numpy's arrays, by their one entry (csrc/table).

A kernel says itself which calls it takes; numpy computes the others.
"""

from __future__ import annotations

from gt import _kernels
from gt.worker.backend import Kernel
from gt.worker.native import threads as native_threads
from gt.worker.reference.kernels import NUMPY
from gt.worker.reference.values import Array


def run(kernel: str, *arguments: object, takes_all: bool = False) -> tuple[Array, ...] | None:
    """The results of a kernel; None where numpy is to compute the call.

    Args:
        kernel: A name in csrc/table.
        arguments: Arrays, numbers, tuples of integers, names of dtypes, or None.
        takes_all: Also calls for which PyTorch's kernels are faster.
    """
    threads = native_threads.count()
    results: tuple[Array, ...] | None = _kernels.run(
        kernel, arguments, None, threads, threads, takes_all
    )
    return results


def first_of(name: str, otherwise: Kernel) -> Kernel:
    """A row by a kernel where it takes the call, else by a function over numpy."""

    def kernel(*operands: object) -> object:
        threads = native_threads.count()
        results = _kernels.run(name, operands, None, threads, threads, False)
        if results is None:
            return otherwise(*operands)
        return results[0] if len(results) == 1 else results

    return kernel


def of_row(row: str) -> Kernel:
    """A row by the kernel of its name, or by numpy."""
    return first_of(row, NUMPY[row])
