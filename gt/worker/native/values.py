"""Conditions that the native backend's kernels put on their operands."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

from gt.worker.native import entry
from gt.worker.reference.values import Array

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
INT64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)
# Exponents that are rows of their own: of -0 and infinities a power is another number.
POWERS: dict[float, str] = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}


def is_float32(value: object) -> TypeGuard[Array]:
    """True if `value` is a plain array of float32: one of bfloat16 is of a class of its own."""
    return type(value) is np.ndarray and value.dtype is FLOAT32


def is_rows(value: object) -> TypeGuard[Array]:
    """True if a kernel of gt._kernels takes `value` as it is: float32, contiguous."""
    return type(value) is np.ndarray and value.dtype is FLOAT32 and value.flags.c_contiguous


def rows(value: Array) -> Array:
    """The array if it is contiguous, else a contiguous copy."""
    return value if value.flags.c_contiguous else copied(value)


def copied(value: Array) -> Array:
    """A contiguous copy."""
    results = entry.run("row_major", value)
    if results is None:
        return np.array(value, order="C", subok=True)
    return results[0].view(type(value))


def as_array(value: object) -> Array:
    """The value as an array: of operands without dimensions numpy's functions return a number."""
    return value if type(value) is np.ndarray else np.asarray(value)
