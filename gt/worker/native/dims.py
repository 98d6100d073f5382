"""Rows of the native backend that look at one dimension, or at some that stand beside each other.

Quick: contiguous float32 with elements, without `dtype`; `cumsum`, `any` and `all` of bools
too, `var` and `std` of any strides. Over several dimensions: those that stand beside each other.
"""

from __future__ import annotations

from gt.worker.backend import Kernel
from gt.worker.native import entry

_ROWS = ("cumsum", "argmax", "argmin", "any", "all", "var", "std")


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {row: entry.of_row(row) for row in _ROWS}
