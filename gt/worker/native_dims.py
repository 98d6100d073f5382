"""Rows of the native backend that look at one dimension, or at some that stand beside each other.

Quick: contiguous float32 with elements, without `dtype`; `cumsum`, `any` and `all` of bools
too, `var` and `std` of any strides. Over several dimensions: those that stand beside each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gt import _kernels
from gt.worker import native_threads
from gt.worker.backend import Kernel
from gt.worker.dim_shapes import Dims, reduced
from gt.worker.native_values import BOOL, FLOAT32, INT64, is_bools, is_float32, is_rows, rows
from gt.worker.reference import NUMPY
from gt.worker.reference_values import Array

_PLACES_MAX = 2**31 - 1  # csrc/cpu/dims.h


def _cumsum(self: Array, dim: int, dtype: str | None) -> object:
    is_bool = is_bools(self)
    if not (is_bool or is_rows(self)) or not self.size or self.ndim == 0 or dtype is not None:
        return NUMPY["cumsum"](self, dim, dtype)
    out = np.empty(self.shape, INT64 if is_bool else FLOAT32)
    inner = math.prod(self.shape[dim % self.ndim + 1 :])
    _kernels.cumsum(self, out, self.shape[dim], inner, native_threads.count())
    return out


def _place(name: str, function: Callable[[Array, Array, int, int], None]) -> Kernel:
    def kernel(self: Array, dim: int | None, keepdim: bool) -> object:
        dims = None if dim is None else (dim,)
        made = reduced(self.shape, dims, keepdim) if is_rows(self) else None
        if made is None or made.count > _PLACES_MAX:
            return NUMPY[name](self, dim, keepdim)
        out = np.empty(made.shape, INT64)
        function(self, out, made.inner, native_threads.count())
        return out

    return kernel


def _truth(name: str, function: Callable[[Array, Array, int, int], None]) -> Kernel:
    def kernel(self: Array, dim: Dims, keepdim: bool) -> object:
        is_plain = is_rows(self) or is_bools(self)
        made = reduced(self.shape, dim, keepdim) if is_plain else None
        if made is None:
            return NUMPY[name](self, dim, keepdim)
        out = np.empty(made.shape, BOOL)
        function(self, out, made.inner, native_threads.count())
        return out

    return kernel


def _spread(name: str, function: Callable[[Array, Array, int, float, int], None]) -> Kernel:
    def kernel(self: Array, dim: Dims, correction: float, keepdim: bool) -> object:
        made = reduced(self.shape, dim, keepdim) if is_float32(self) else None
        if made is None or not correction < made.count:
            return NUMPY[name](self, dim, correction, keepdim)
        out = np.empty(made.shape, FLOAT32)
        function(rows(self), out, made.inner, correction, native_threads.count())
        return out

    return kernel


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {
        "cumsum": _cumsum,
        "argmax": _place("argmax", _kernels.argmax),
        "argmin": _place("argmin", _kernels.argmin),
        "any": _truth("any", _kernels.any),
        "all": _truth("all", _kernels.all),
        "var": _spread("var", _kernels.var),
        "std": _spread("std", _kernels.std),
    }
