"""Choices by bools for the native backend: numpy's function branches on each.

Quick: conditions and masks of bool; tensors of one dtype (float32, float64, float16, int32, int64
or bool) of any strides, and numbers that this dtype has, but for those of float16.
"""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from gt import _kernels
from gt.worker.backend import Kernel
from gt.worker.native import threads
from gt.worker.native.values import BOOL, FLOAT32, FLOAT64, INT64, rows
from gt.worker.reference.kernels import NUMPY
from gt.worker.reference.values import Array

_INT32 = np.dtype(np.int32)
_DTYPES = frozenset({FLOAT32, FLOAT64, np.dtype(np.float16), _INT32, INT64, BOOL})


def _where(condition: Any, self: Any, other: Any) -> object:  # noqa: ANN401 - arrays or numbers
    dtype = next((x.dtype for x in (self, other) if isinstance(x, np.ndarray)), None)
    if not (_is_mask(condition) and _is_taken(self, dtype) and _is_taken(other, dtype)):
        return NUMPY["where"](condition, self, other)
    return chosen(condition, self, other)


def _masked_fill(self: Any, mask: Any, value: Any) -> object:  # noqa: ANN401 - as where
    is_taken = isinstance(self, np.ndarray) and _is_taken(self, self.dtype)
    is_number = not isinstance(value, np.ndarray)
    if not (is_taken and is_number and _is_mask(mask) and _is_taken(value, self.dtype)):
        return NUMPY["masked_fill"](self, mask, value)
    return chosen(mask, value, self)


def chosen(condition: Array, self: Array | float, other: Array | float) -> Array:
    """`self` where the condition holds, else `other`; broadcast, of the dtype of the arrays."""
    arrays = [x for x in (self, other) if isinstance(x, np.ndarray)]
    size = condition.shape
    if any(x.shape != size for x in arrays):
        size = np.broadcast_shapes(size, *(x.shape for x in arrays))
    out = np.empty(size, arrays[0].dtype)
    if 0 in size:
        return out
    if condition.shape != size[len(size) - condition.ndim :]:
        condition = np.broadcast_to(condition, size)
    left, right = (_spread(x, size, out.dtype) for x in (self, other))
    _kernels.where(rows(condition), left, right, out, threads.count())
    return out


def _spread(value: Array | float, size: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Contiguous, of that size or one element."""
    if not isinstance(value, np.ndarray):
        return np.full((), value, dtype)
    return rows(value if value.shape == size or value.size == 1 else np.broadcast_to(value, size))


def _is_mask(value: object) -> TypeGuard[NDArray[np.bool_]]:
    return type(value) is np.ndarray and value.dtype is BOOL


def _is_taken(value: object, dtype: np.dtype[Any] | None) -> bool:
    """True if `value` is a plain array of this dtype, or a number that the dtype has."""
    if dtype is None:
        return False
    if isinstance(value, np.ndarray):
        return type(value) is np.ndarray and value.dtype == dtype and dtype in _DTYPES
    if dtype in (FLOAT32, FLOAT64):
        most = np.finfo(dtype).max
        return isinstance(value, int | float) and (math.isinf(value) or not abs(value) > most)
    if dtype in (_INT32, INT64):
        limits = np.iinfo(dtype)
        return type(value) is int and limits.min <= value <= limits.max
    return dtype is BOOL and type(value) is bool


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {"where": _where, "masked_fill": _masked_fill}
