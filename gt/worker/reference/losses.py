"""Rows of the family loss in numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gt.worker.backend import Kernel
from gt.worker.reference.values import (
    Array,
    dtype_name,
    in_whole,
    narrowed,
    promotion,
    wide_name,
    widened,
)


def _classes_last(self: Array) -> Array:
    return np.moveaxis(widened(self), 1, -1) if self.ndim > 1 else widened(self)


def _check_targets(target: Array, classes: int, ignore_index: int) -> None:
    wrong = (target != ignore_index) & ((target < 0) | (target >= classes))
    if np.any(wrong):
        raise IndexError(f"Target {np.asarray(target)[wrong].flat[0]} is out of bounds.")


def _weights(
    target: Array, weight: Array | None, classes: int, ignore_index: int
) -> npt.NDArray[np.floating]:
    """The weight of each target's class; 0 for ignored targets."""
    each = np.ones(classes, np.float64) if weight is None else widened(weight)
    places = np.where(target == ignore_index, 0, target)
    return np.where(target == ignore_index, 0, each[places])


def _completed(
    self: Array, weight: Array | None, start: int | None = None, total: int | None = None
) -> tuple[Array, Array | None]:
    """A shard of the classes among zeros, whose weight is 0."""
    if start is None or total is None:
        return self, weight
    dim = min(self.ndim - 1, 1)
    each = np.ones(self.shape[dim], np.float64) if weight is None else weight
    return in_whole(self, dim, start, total), in_whole(each, 0, start, total)


def _nll_loss(
    self: Array,
    target: Array,
    weight: Array | None,
    reduction: str,
    ignore_index: int,
    start: int | None = None,
    total: int | None = None,
) -> tuple[Array, Array]:
    self, weight = _completed(self, weight, start, total)
    name, x = dtype_name(self), _classes_last(self)
    _check_targets(target, x.shape[-1], ignore_index)
    weights = _weights(target, weight, x.shape[-1], ignore_index)
    classes = np.where(target == ignore_index, 0, target)
    picked = np.take_along_axis(x, np.asarray(classes)[..., None], axis=-1)[..., 0]
    losses = np.where(weights == 0, 0, -picked * weights)
    weight_sum = np.sum(weights)
    if reduction == "none":
        return narrowed(losses, name), narrowed(0.0, name)
    loss = np.sum(losses) / weight_sum if reduction == "mean" else np.sum(losses)
    return narrowed(loss, name), narrowed(weight_sum, name)


def _at_targets(x: Array, target: Array, share: Array, ignore_index: int) -> Array:
    """Each target's share at its class, zeros elsewhere."""
    classes = np.where(target == ignore_index, 0, target)
    out = np.zeros(x.shape, x.dtype)
    np.put_along_axis(out, np.asarray(classes)[..., None], np.asarray(share)[..., None], axis=-1)
    return out


def _nll_loss_backward(
    grad: Array,
    self: Array,
    target: Array,
    weight: Array | None,
    total_weight: Array,
    reduction: str,
    ignore_index: int,
    start: int | None = None,
    total: int | None = None,
) -> Array:
    dim, size = min(self.ndim - 1, 1), self.shape[min(self.ndim - 1, 1)]
    self, weight = _completed(self, weight, start, total)
    x = _classes_last(self)
    weights = _weights(target, weight, x.shape[-1], ignore_index)
    share = -weights * widened(grad)
    share = share / widened(total_weight) if reduction == "mean" else share
    out = _at_targets(x, target, share, ignore_index)
    out = np.moveaxis(out, -1, 1) if self.ndim > 1 else out
    return narrowed(_shard(out, dim, start, size), dtype_name(self))


def _shard(whole: Array, dim: int, start: int | None, size: int) -> Array:
    return whole if start is None else np.take(whole, range(start, start + size), axis=dim)


def _cross_entropy(
    self: Array,
    target: Array,
    weight: Array | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> tuple[Array, Array, Array]:
    name, x = dtype_name(self), _classes_last(self)
    shifted = x - np.max(x, axis=-1, keepdims=True)
    log_probs = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    each = np.ones(x.shape[-1], np.float64) if weight is None else widened(weight)
    _check_targets(target, x.shape[-1], ignore_index)
    weights = _weights(target, weight, x.shape[-1], ignore_index)
    index = np.where(target == ignore_index, 0, target).reshape(x.shape[:-1])
    picked = np.take_along_axis(log_probs, index[..., None], axis=-1)[..., 0].reshape(target.shape)
    evenly = np.sum(-log_probs * each, axis=-1).reshape(target.shape)
    evenly = np.where(target == ignore_index, 0, evenly)
    losses = np.where(weights == 0, 0, -picked * weights) * (1 - label_smoothing)
    losses = losses + evenly * (label_smoothing / x.shape[-1]) if label_smoothing else losses
    in_place = np.moveaxis(log_probs, -1, 1) if self.ndim > 1 else log_probs
    out = narrowed(in_place, name)
    if reduction == "none":
        losses = losses if self.ndim > 1 else losses.reshape(())
        return narrowed(losses, name), out, narrowed(0.0, name)
    weight_sum = np.sum(weights)
    loss = np.sum(losses) / weight_sum if reduction == "mean" else np.sum(losses)
    return narrowed(loss, name), out, narrowed(weight_sum, name)


def _cross_entropy_backward(
    grad: Array,
    log_probs: Array,
    target: Array,
    weight: Array | None,
    total_weight: Array,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    start: int | None = None,
    total: int | None = None,
) -> Array:
    dim, size = min(log_probs.ndim - 1, 1), log_probs.shape[min(log_probs.ndim - 1, 1)]
    name = dtype_name(log_probs)
    if start is not None and total is not None:
        # The other classes' probability is 0 here: their gradient is another member's.
        log_probs = in_whole(log_probs, dim, start, total, -np.inf)
    x = _classes_last(log_probs)
    target = target.reshape(x.shape[:-1])
    one = widened(grad).reshape(x.shape[:-1] if reduction == "none" else ())
    one = one / widened(total_weight) if reduction == "mean" else one
    weights = _weights(target, weight, x.shape[-1], ignore_index)
    along = _at_targets(x, target, -weights * one * (1 - label_smoothing), ignore_index)
    if label_smoothing:
        each = np.ones(x.shape[-1], np.float64) if weight is None else widened(weight)
        evenly = np.where(target == ignore_index, 0, one * (label_smoothing / x.shape[-1]))
        along = along - evenly[..., None] * each
    out = along - np.exp(x) * np.sum(along, axis=-1, keepdims=True)
    out = np.moveaxis(out, -1, 1) if log_probs.ndim > 1 else out
    return narrowed(_shard(out, dim, start, size), name)


_REDUCTIONS: dict[str, Callable[[Array], Array]] = {
    "none": np.asarray,
    "mean": np.mean,
    "sum": np.sum,
}


def _as(value: Array, name: str) -> Array:
    return widened(value).astype(wide_name(name))


def _mse_loss(self: Array, target: Array, reduction: str) -> Array:
    name = promotion((self, target))
    squares = np.square(_as(self, name) - _as(target, name))
    return narrowed(_REDUCTIONS[reduction](squares), name)


def _mse_loss_backward(grad: Array, self: Array, target: Array, reduction: str) -> Array:
    difference = widened(self) - widened(target)
    scale = 2 / difference.size if reduction == "mean" else 2
    return narrowed(widened(grad) * difference * scale, dtype_name(self))


def _smooth_l1_loss(self: Array, target: Array, reduction: str, beta: float) -> Array:
    name = promotion((self, target))
    distance = np.abs(_as(self, name) - _as(target, name))
    near = np.minimum(distance, beta)  # no infinity is squared
    losses = np.where(distance < beta, 0.5 * near * near / beta, distance - 0.5 * beta)
    return narrowed(_REDUCTIONS[reduction](losses), name)


def _smooth_l1_loss_backward(
    grad: Array, self: Array, target: Array, reduction: str, beta: float
) -> Array:
    difference = widened(self) - widened(target)
    slope = np.where(np.abs(difference) < beta, difference / beta, np.sign(difference))
    scale = 1 / difference.size if reduction == "mean" else 1
    return narrowed(widened(grad) * slope * scale, dtype_name(self))


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {
        "nll_loss": _nll_loss,
        "nll_loss_backward": _nll_loss_backward,
        "cross_entropy": _cross_entropy,
        "cross_entropy_backward": _cross_entropy_backward,
        "mse_loss": _mse_loss,
        "mse_loss_backward": _mse_loss_backward,
        "smooth_l1_loss": _smooth_l1_loss,
        "smooth_l1_loss_backward": _smooth_l1_loss_backward,
    }
