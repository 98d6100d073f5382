"""Rows of the families contract, reduce and normalize of the native backend.

Quick: contiguous float32 without `dtype`; softmax and its kin over the last dimension. Sums, means,
largest and smallest of float32 of any strides are numpy's; contiguous bools are counted. Products
of matrices of float32, of any strides, from 64**3 multiplications on; others, and those of float64,
are numpy's (OpenBLAS's).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gt.worker.backend import Kernel
from gt.worker.native import entry
from gt.worker.native.values import (
    FLOAT32,
    FLOAT64,
    as_array,
    is_float32,
)
from gt.worker.reference.kernels import NUMPY
from gt.worker.reference.values import Array

Dims = tuple[int, ...] | None

_FLOATS = (FLOAT32, FLOAT64)
# Rows by kernels of their name.
_ROWS = [
    "softmax",
    "log_softmax",
    "softmax_backward",
    "log_softmax_backward",
    "layer_norm",
    "layer_norm_backward",
    "batch_norm",
    "batch_norm_backward",
    "rms_norm",
    "rms_norm_backward",
]


def _multiplies(left: object, right: object) -> bool:
    """True if the two are arrays of one dtype that BLAS knows."""
    return (
        type(left) is np.ndarray
        and type(right) is np.ndarray
        and left.dtype in _FLOATS
        and left.dtype is right.dtype
    )


def _product(left: Array, right: Array) -> Array:
    """One product of matrices also where a batch is multiplied by one matrix."""
    if left.ndim > 2 and right.ndim == 2 and left.size and left.flags.c_contiguous:
        flat = np.matmul(left.reshape(-1, left.shape[-1]), right)
        return flat.reshape(*left.shape[:-1], right.shape[-1])
    return as_array(np.matmul(left, right))


def _matmul(self: Array, other: Array) -> object:
    if results := entry.run("matmul", self, other, None, None):
        return results[0]
    return _product(self, other) if _multiplies(self, other) else NUMPY["matmul"](self, other)


def _linear(input: Array, weight: Array, bias: Array | None) -> object:
    joins = bias is None or (bias.shape == weight.shape[:1] and bias.flags.c_contiguous)
    if results := entry.run("linear", input, weight, bias if joins else None, None, None):
        return results[0] if bias is None or joins else np.add(results[0], bias, out=results[0])
    plain = _multiplies(input, weight) and weight.ndim == 2 and input.ndim > 0
    if not plain or (bias is not None and bias.dtype is not input.dtype):
        return NUMPY["linear"](input, weight, bias)
    out = _product(input, weight.T)
    return out if bias is None else np.add(out, bias, out=out)


def _by_numpy(reduced: Callable[..., object], self: Array, dim: Dims, *, keepdim: bool) -> Array:
    return as_array(reduced(self, axis=dim or None, keepdims=keepdim))


def sum_over(self: Array, dim: Dims) -> Array:
    """The sum of float32 over some dimensions, or all."""
    results = entry.run("sum", self, dim, False, None)
    return _by_numpy(np.add.reduce, self, dim, keepdim=False) if results is None else results[0]


def _sum(self: Array, dim: Dims, keepdim: bool, dtype: str | None) -> object:
    if not is_float32(self) or dtype is not None or self.ndim == 0:
        return NUMPY["sum"](self, dim, keepdim, dtype)
    return _by_numpy(np.add.reduce, self, dim, keepdim=keepdim)


def _mean(self: Array, dim: Dims, keepdim: bool, dtype: str | None) -> object:
    if not is_float32(self) or dtype is not None or self.ndim == 0 or not self.size:
        return NUMPY["mean"](self, dim, keepdim, dtype)
    total = _by_numpy(np.add.reduce, self, dim, keepdim=keepdim)
    return np.divide(total, np.float32(self.size // total.size), out=total)


def _extreme(name: str, reduced: Callable[..., object]) -> Kernel:
    def kernel(self: Array, dim: Dims, keepdim: bool) -> object:
        if not is_float32(self) or self.ndim == 0:
            return NUMPY[name](self, dim, keepdim)
        return _by_numpy(reduced, self, dim, keepdim=keepdim)

    return kernel


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {
        "matmul": _matmul,
        "linear": _linear,
        "sum": entry.first_of("sum", _sum),
        "mean": entry.first_of("mean", _mean),
        "amax": entry.first_of("amax", _extreme("amax", np.maximum.reduce)),
        "amin": entry.first_of("amin", _extreme("amin", np.minimum.reduce)),
        **{row: entry.of_row(row) for row in _ROWS},
    }
