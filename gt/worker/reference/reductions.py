"""Rows of the families contract, reduce and normalize in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gt.worker.backend import Kernel
from gt.worker.reference.order import (
    chosen,
    median_place,
    most_frequent,
    nanmedian_place,
    running_extreme,
)
from gt.worker.reference.values import (
    Array,
    dtype_name,
    is_complex,
    is_float,
    narrowed,
    promotion,
    wide_name,
    widened,
)

Dims = tuple[int, ...] | None


def _as(value: Array, name: str) -> Array:
    return widened(value).astype(wide_name(name))


def _matmul(self: Array, other: Array) -> Array:
    name = promotion((self, other))
    return narrowed(np.matmul(_as(self, name), _as(other, name)), name)


def _linear(input: Array, weight: Array, bias: Array | None) -> Array:
    name = promotion((input, weight))
    out = np.matmul(
        _as(input, name),
        np.swapaxes(_as(weight, name), -1, -2) if weight.ndim > 1 else _as(weight, name),
    )
    return narrowed(out if bias is None else out + _as(bias, name), name)


def _axis(self: Array, dim: Dims | int) -> Dims | int:
    """Axes for numpy; None for a 0-d array, whatever `dim` PyTorch accepts there."""
    return None if self.ndim == 0 or dim == () else dim


def _summed_dtype(self: Array, dtype: str | None) -> str:
    """The dtype of a sum: int64 for integers."""
    name = dtype_name(self)
    return dtype or (name if is_float(name) or is_complex(name) else "int64")


def _over_dims(function: Callable[..., npt.ArrayLike]) -> Kernel:
    def kernel(self: Array, dim: Dims | int, keepdim: bool, dtype: str | None) -> Array:
        name = _summed_dtype(self, dtype)
        out = function(_as(self, name), axis=_axis(self, dim), keepdims=keepdim)
        return narrowed(out, name)

    return kernel


def _extreme(function: Callable[..., npt.ArrayLike]) -> Kernel:
    def kernel(self: Array, dim: Dims, keepdim: bool) -> Array:
        out = function(widened(self), axis=_axis(self, dim), keepdims=keepdim)
        return narrowed(out, dtype_name(self))

    return kernel


def _place(function: Callable[..., npt.ArrayLike]) -> Kernel:
    def kernel(self: Array, dim: int | None, keepdim: bool) -> Array:
        if self.ndim == 0:
            return np.zeros((), dtype=np.int64)
        return narrowed(function(widened(self), axis=dim, keepdims=keepdim), "int64")

    return kernel


def _extreme_and_place(place: Callable[..., npt.ArrayLike]) -> Kernel:
    def kernel(self: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
        wide = widened(self)
        if self.ndim == 0:
            return narrowed(wide, dtype_name(self)), np.zeros((), dtype=np.int64)
        index = np.asarray(place(wide, axis=dim, keepdims=True))
        value = np.take_along_axis(wide, index, axis=dim)
        if not keepdim:
            index, value = np.squeeze(index, axis=dim), np.squeeze(value, axis=dim)
        return narrowed(value, dtype_name(self)), narrowed(index, "int64")

    return kernel


def _truth(function: Callable[..., npt.ArrayLike]) -> Kernel:
    def kernel(self: Array, dim: Dims, keepdim: bool) -> Array:
        out = function(widened(self) != 0, axis=dim if self.ndim else None, keepdims=keepdim)
        return narrowed(out, "uint8" if dtype_name(self) == "uint8" else "bool")

    return kernel


def _var(self: Array, dim: Dims, correction: float, keepdim: bool) -> Array:
    return narrowed(_variance(self, dim, correction, keepdim), dtype_name(self))


def _std(self: Array, dim: Dims, correction: float, keepdim: bool) -> Array:
    return narrowed(np.sqrt(_variance(self, dim, correction, keepdim)), dtype_name(self))


def _variance(self: Array, dim: Dims, correction: float, keepdim: bool) -> Array:
    wide, axis = widened(self), _axis(self, dim)
    squares = np.square(wide - np.mean(wide, axis=axis, keepdims=True))
    total = np.sum(squares, axis=axis, keepdims=keepdim)
    count = wide.size // max(np.size(total), 1)
    return np.asarray(total / max(count - correction, 0))


def _logsumexp(self: Array, dim: Dims, keepdim: bool) -> Array:
    name = dtype_name(self) if is_float(dtype_name(self)) else "float32"
    wide, axis = _as(self, name), _axis(self, dim)
    largest = np.max(wide, axis=axis, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0)
    total = np.sum(np.exp(wide - largest), axis=axis, keepdims=True)
    out = np.log(total) + largest
    return narrowed(out if keepdim else np.squeeze(out, axis=axis), name)


def _cumsum(self: Array, dim: int, dtype: str | None) -> Array:
    name = _summed_dtype(self, dtype)
    if self.ndim == 0:
        return narrowed(_as(self, name), name)
    return narrowed(np.cumsum(_as(self, name), axis=dim), name)


def _shifted(self: Array, dim: int, dtype: str | None) -> tuple[Array, str]:
    name = dtype or dtype_name(self)
    wide = _as(self, name)
    return wide - np.max(
        wide, axis=dim, keepdims=True
    ) if wide.size and wide.ndim else wide * 0, name


def _logcumsumexp(self: Array, dim: int) -> Array:
    if self.ndim == 0:
        return self.copy()
    return narrowed(np.logaddexp.accumulate(widened(self), axis=dim), dtype_name(self))


def _softmax(self: Array, dim: int, dtype: str | None) -> Array:
    shifted, name = _shifted(self, dim, dtype)
    if shifted.ndim == 0:
        return narrowed(np.exp(shifted), name)
    return narrowed(np.exp(shifted) / np.sum(np.exp(shifted), axis=dim, keepdims=True), name)


def _log_softmax(self: Array, dim: int, dtype: str | None) -> Array:
    shifted, name = _shifted(self, dim, dtype)
    if shifted.ndim == 0:
        return narrowed(shifted, name)
    return narrowed(shifted - np.log(np.sum(np.exp(shifted), axis=dim, keepdims=True)), name)


def _softmax_backward(grad: Array, out: Array, dim: int) -> Array:
    g, y = widened(grad), widened(out)
    return narrowed(y * (g - np.sum(g * y, axis=dim, keepdims=True)), dtype_name(out))


def _log_softmax_backward(grad: Array, out: Array, dim: int) -> Array:
    g, y = widened(grad), widened(out)
    return narrowed(g - np.exp(y) * np.sum(g, axis=dim, keepdims=True), dtype_name(out))


def _normalized(size: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(-len(size), 0))


def _layer_norm(
    input: Array, weight: Array | None, bias: Array | None, size: tuple[int, ...], eps: float
) -> tuple[Array, Array, Array]:
    x, axis, name = widened(input), _normalized(size), dtype_name(input)
    mean = np.mean(x, axis=axis, keepdims=True)
    rstd = 1 / np.sqrt(np.mean(np.square(x - mean), axis=axis, keepdims=True) + eps)
    out = (x - mean) * rstd
    out = out if weight is None else out * widened(weight)
    out = out if bias is None else out + widened(bias)
    return narrowed(out, name), narrowed(mean, name), narrowed(rstd, name)


def _layer_norm_backward(
    grad: Array,
    input: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    size: tuple[int, ...],
) -> tuple[Array, Array, Array]:
    name, axis = dtype_name(input), _normalized(size)
    g, scale = widened(grad), widened(rstd)
    normal = (widened(input) - widened(mean)) * scale
    inner = g if weight is None else g * widened(weight)
    middle = np.mean(inner, axis=axis, keepdims=True)
    along = np.mean(inner * normal, axis=axis, keepdims=True)
    batch = tuple(range(g.ndim - len(size)))
    grads = (
        scale * (inner - middle - normal * along),
        np.sum(g * normal, axis=batch),
        np.sum(g, axis=batch),
    )
    first, second, third = (narrowed(one, name) for one in grads)
    return first, second, third


def _rms_norm(
    input: Array, weight: Array | None, size: tuple[int, ...], eps: float
) -> tuple[Array, Array]:
    x, name = widened(input), dtype_name(input)
    rstd = np.asarray(1 / np.sqrt(_mean_of_rows(np.square(x), size) + eps))
    out = x * rstd if weight is None else x * rstd * widened(weight)
    return narrowed(out, name), rstd


def _rms_norm_backward(
    grad: Array, input: Array, rstd: Array, weight: Array | None, size: tuple[int, ...]
) -> tuple[Array, Array]:
    name, g, normal = dtype_name(input), widened(grad), widened(input) * rstd
    inner = g if weight is None else g * widened(weight)
    along = _mean_of_rows(inner * normal, size)
    of_weight = np.sum(g * normal, axis=tuple(range(g.ndim - len(size))))
    return narrowed(rstd * (inner - normal * along), name), narrowed(of_weight, name)


def _mean_of_rows(x: Array, size: tuple[int, ...]) -> Array:
    """Means of rows; NaN for rows without elements, without the warning of np.mean."""
    total = np.sum(x, axis=_normalized(size), keepdims=True)
    return np.asarray(total / total.dtype.type(math.prod(size)))


def _batch_norm(
    input: Array, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array, Array]:
    others, count = _others(input), input.size // max(input.shape[1], 1)
    if not count:
        mean, rstd, var = np.zeros((3, input.shape[1]), input.dtype)
        return input.copy(), mean, rstd, var
    mean = np.mean(input, axis=others, keepdims=True)
    squares = np.sum(np.square(input - mean), axis=others, keepdims=True)
    rstd = 1 / np.sqrt(squares / count + input.dtype.type(eps))
    out = (input - mean) * rstd
    out = out if weight is None else out * _of_channels(weight, input)
    out = out if bias is None else out + _of_channels(bias, input)
    var = squares / input.dtype.type(count - 1)
    return out, mean.reshape(-1), rstd.reshape(-1), var.reshape(-1)


def _batch_norm_backward(
    grad: Array, input: Array, mean: Array, rstd: Array, weight: Array | None
) -> tuple[Array, Array, Array]:
    if not input.size:
        return grad.copy(), np.zeros_like(mean), np.zeros_like(mean)
    others, scale = _others(input), _of_channels(rstd, input)
    normal = (input - _of_channels(mean, input)) * scale
    level, slope = (np.mean(x, axis=others, keepdims=True) for x in (grad, grad * normal))
    factor = scale if weight is None else scale * _of_channels(weight, input)
    return (
        (grad - level - normal * slope) * factor,
        np.sum(grad * normal, axis=others),
        np.sum(grad, axis=others),
    )


def _others(input: Array) -> tuple[int, ...]:
    """All dimensions except that of the channels."""
    return tuple(dim for dim in range(input.ndim) if dim != 1)


def _of_channels(value: Array, input: Array) -> Array:
    return value.reshape(-1, *([1] * (input.ndim - 2)))


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {
        "matmul": _matmul,
        "linear": _linear,
        "sum": _over_dims(np.sum),
        "mean": _over_dims(np.mean),
        "prod": _over_dims(np.prod),
        "amax": _extreme(np.max),
        "amin": _extreme(np.min),
        "argmax": _place(np.argmax),
        "argmin": _place(np.argmin),
        "max_dim": _extreme_and_place(np.argmax),
        "min_dim": _extreme_and_place(np.argmin),
        "all": _truth(np.all),
        "any": _truth(np.any),
        "var": _var,
        "std": _std,
        "logsumexp": _logsumexp,
        "cumsum": _cumsum,
        "nansum": _over_dims(np.nansum),
        "softmax": _softmax,
        "log_softmax": _log_softmax,
        "softmax_backward": _softmax_backward,
        "log_softmax_backward": _log_softmax_backward,
        "layer_norm": _layer_norm,
        "layer_norm_backward": _layer_norm_backward,
        "rms_norm": _rms_norm,
        "rms_norm_backward": _rms_norm_backward,
        "batch_norm": _batch_norm,
        "batch_norm_backward": _batch_norm_backward,
        "cummax": running_extreme(np.greater_equal),
        "cummin": running_extreme(np.less_equal),
        "logcumsumexp": _logcumsumexp,
        "mode": chosen(most_frequent),
        "median_dim": chosen(median_place),
        "nanmedian_dim": chosen(nanmedian_place),
    }
