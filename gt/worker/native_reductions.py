"""Rows of the families contract, reduce and normalize of the native backend."""

from __future__ import annotations

import numpy as np

from gt import _kernels
from gt.worker.backend import Kernel
from gt.worker.native_values import FLOAT32, FLOAT64, as_array, is_float32, is_rows, rows
from gt.worker.reference import NUMPY
from gt.worker.reference_values import Array

_FLOATS = (FLOAT32, FLOAT64)


def _multiplies(left: object, right: object) -> bool:
    """Whether the two are arrays of one dtype that BLAS knows."""
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
        return as_array(flat).reshape(*left.shape[:-1], right.shape[-1])
    return as_array(np.matmul(left, right))


def _matmul(self: Array, other: Array) -> object:
    return _product(self, other) if _multiplies(self, other) else NUMPY["matmul"](self, other)


def _linear(input: Array, weight: Array, bias: Array | None) -> object:
    plain = _multiplies(input, weight) and weight.ndim == 2 and input.ndim > 0
    if not plain or (bias is not None and bias.dtype is not input.dtype):
        return NUMPY["linear"](input, weight, bias)
    out = _product(input, weight.T)
    return out if bias is None else np.add(out, bias, out=out)


def _sum(self: Array, dim: tuple[int, ...] | None, keepdim: bool, dtype: str | None) -> object:
    if not is_float32(self) or dtype is not None or self.ndim == 0:
        return NUMPY["sum"](self, dim, keepdim, dtype)
    return as_array(np.sum(self, axis=dim or None, keepdims=keepdim))


def _mean(self: Array, dim: tuple[int, ...] | None, keepdim: bool, dtype: str | None) -> object:
    if not is_float32(self) or dtype is not None or self.ndim == 0 or not self.size:
        return NUMPY["mean"](self, dim, keepdim, dtype)
    total = as_array(np.sum(self, axis=dim or None, keepdims=keepdim))
    return np.divide(total, np.float32(self.size // total.size), out=total)


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
    given = [x for x in (input, weight, bias) if x is not None]
    if not all(map(is_rows, given)) or not input.size:
        return NUMPY["layer_norm"](input, weight, bias, size, eps)
    kept = input.shape[: input.ndim - len(size)] + (1,) * len(size)
    out, mean, rstd = (np.empty(shape, FLOAT32) for shape in (input.shape, kept, kept))
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
    given = [x for x in (input, mean, rstd, weight) if x is not None]
    if not all(map(is_rows, given)) or not is_float32(grad) or not input.size:
        return NUMPY["layer_norm_backward"](grad, input, mean, rstd, weight, size)
    grads = tuple(np.empty(shape, FLOAT32) for shape in (input.shape, size, size))
    _kernels.layer_norm_backward(rows(grad), input, mean, rstd, weight, *grads)
    return grads


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {
        "matmul": _matmul,
        "linear": _linear,
        "sum": _sum,
        "mean": _mean,
        "softmax": _softmax,
        "log_softmax": _log_softmax,
        "softmax_backward": _softmax_backward,
        "log_softmax_backward": _log_softmax_backward,
        "layer_norm": _layer_norm,
        "layer_norm_backward": _layer_norm_backward,
    }
