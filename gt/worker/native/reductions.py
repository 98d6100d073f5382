"""Rows of the families contract, reduce and normalize of the native backend.

Quick: contiguous float32 without `dtype`; softmax and its kin over the last dimension. Sums, means,
largest and smallest of float32 of any strides are numpy's; contiguous bools are counted. Products
of matrices of float32, of any strides, from 64**3 multiplications on; others, and those of float64,
are numpy's (OpenBLAS's).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

from gt import _kernels
from gt.worker.backend import Kernel
from gt.worker.native import entry
from gt.worker.native.values import (
    FLOAT32,
    FLOAT64,
    as_array,
    is_bools,
    is_float32,
    is_rows,
    rows,
)
from gt.worker.reference.kernels import NUMPY
from gt.worker.reference.values import Array

Dims = tuple[int, ...] | None

_FLOATS = (FLOAT32, FLOAT64)
_NORMS = ("batch_norm", "batch_norm_backward", "rms_norm", "rms_norm_backward")


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


def _reduced(
    function: Callable[[Array, Array, int], None],
    otherwise: Callable[..., object],
    self: Array,
    dim: Dims,
    keepdim: bool,
) -> Array:
    """By a kernel, which takes dimensions that stand beside each other, or by numpy's function."""
    if not is_rows(self) or not self.size:
        return as_array(otherwise(self, axis=dim or None, keepdims=keepdim))
    for size, inner in _steps(self.shape, dim, keepdim):
        out = np.empty(size, FLOAT32)
        function(self, out, inner)
        self = out
    return self


@functools.lru_cache(maxsize=1024)
def _steps(shape: tuple[int, ...], dim: Dims, keepdim: bool) -> list[tuple[tuple[int, ...], int]]:
    """One result for each run of dimensions beside each other, and what stands behind the run."""
    dims = {one % len(shape) for one in dim} if dim else set(range(len(shape)))
    steps = []
    for last in sorted(dims, reverse=True):
        shape = (*shape[:last], 1, *shape[last + 1 :])
        if last - 1 not in dims:
            steps.append((shape, math.prod(shape[last + 1 :])))
    if not keepdim:
        sizes = tuple(size for at, size in enumerate(shape) if at not in dims)
        steps[-1] = (sizes, steps[-1][1])
    return steps


def sum_over(self: Array, dim: Dims) -> Array:
    """The sum of float32 over some dimensions, or all."""
    return _reduced(_kernels.sum, np.add.reduce, self, dim, keepdim=False)


def _sum(self: Array, dim: Dims, keepdim: bool, dtype: str | None) -> object:
    if is_bools(self) and (results := entry.run("count_true", self, dim, keepdim, dtype)):
        return results[0]
    if not is_float32(self) or dtype is not None or self.ndim == 0:
        return NUMPY["sum"](self, dim, keepdim, dtype)
    return _reduced(_kernels.sum, np.add.reduce, self, dim, keepdim)


def _mean(self: Array, dim: Dims, keepdim: bool, dtype: str | None) -> object:
    if not is_float32(self) or dtype is not None or self.ndim == 0 or not self.size:
        return NUMPY["mean"](self, dim, keepdim, dtype)
    total = _reduced(_kernels.sum, np.add.reduce, self, dim, keepdim)
    return np.divide(total, np.float32(self.size // total.size), out=total)


def _extreme(
    name: str, function: Callable[[Array, Array, int], None], of_numpy: np.ufunc
) -> Kernel:
    def kernel(self: Array, dim: Dims, keepdim: bool) -> object:
        if not is_float32(self) or self.ndim == 0:
            return NUMPY[name](self, dim, keepdim)
        return _reduced(function, of_numpy.reduce, self, dim, keepdim)

    return kernel


def _is_last(self: object, dim: int) -> bool:
    return is_rows(self) and self.ndim > 0 and dim in (-1, self.ndim - 1)


def _softmax(self: Array, dim: int, dtype: str | None) -> object:
    if not _is_last(self, dim) or dtype is not None:
        return NUMPY["softmax"](self, dim, dtype)
    out = np.empty(self.shape, FLOAT32)
    _kernels.softmax(self, out)
    return out


def _log_softmax(self: Array, dim: int, dtype: str | None) -> object:
    if not _is_last(self, dim) or dtype is not None:
        return NUMPY["log_softmax"](self, dim, dtype)
    out = np.empty(self.shape, FLOAT32)
    _kernels.log_softmax(self, out)
    return out


def _softmax_backward(grad: Array, out: Array, dim: int) -> object:
    if not (_is_last(out, dim) and is_float32(grad)):
        return NUMPY["softmax_backward"](grad, out, dim)
    result = np.empty(out.shape, FLOAT32)
    _kernels.softmax_backward(rows(grad), out, result)
    return result


def _log_softmax_backward(grad: Array, out: Array, dim: int) -> object:
    if not (_is_last(out, dim) and is_float32(grad)):
        return NUMPY["log_softmax_backward"](grad, out, dim)
    result = np.empty(out.shape, FLOAT32)
    _kernels.log_softmax_backward(rows(grad), out, result)
    return result


def _layer_norm(
    input: Array, weight: Array | None, bias: Array | None, size: tuple[int, ...], eps: float
) -> object:
    operands = [x for x in (input, weight, bias) if x is not None]
    if not all(map(is_rows, operands)) or not input.size:
        return NUMPY["layer_norm"](input, weight, bias, size, eps)
    rows_shape = _of_rows(input, size)
    out, mean, rstd = (np.empty(shape, FLOAT32) for shape in (input.shape, rows_shape, rows_shape))
    _kernels.layer_norm(input, weight, bias, eps, out, mean, rstd)
    return out, mean, rstd


def _layer_norm_backward(
    grad: Array,
    input: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    size: tuple[int, ...],
) -> object:
    operands = [x for x in (input, mean, rstd, weight) if x is not None]
    if not all(map(is_rows, operands)) or not is_float32(grad) or not input.size:
        return NUMPY["layer_norm_backward"](grad, input, mean, rstd, weight, size)
    grads = tuple(np.empty(shape, FLOAT32) for shape in (input.shape, size, size))
    _kernels.layer_norm_backward(rows(grad), input, mean, rstd, weight, *grads)
    return grads


def _of_rows(input: Array, size: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a number for each row that is normalized over."""
    return input.shape[: input.ndim - len(size)] + (1,) * len(size)


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {
        "matmul": _matmul,
        "linear": _linear,
        "sum": _sum,
        "mean": _mean,
        "amax": _extreme("amax", _kernels.amax, np.maximum),
        "amin": _extreme("amin", _kernels.amin, np.minimum),
        "softmax": _softmax,
        "log_softmax": _log_softmax,
        "softmax_backward": _softmax_backward,
        "log_softmax_backward": _log_softmax_backward,
        "layer_norm": _layer_norm,
        "layer_norm_backward": _layer_norm_backward,
        **{row: entry.of_row(row) for row in _NORMS},
    }
