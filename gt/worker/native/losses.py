"""Rows of the family loss of the native backend: cross-entropy and mean squared error.

Quick: cross-entropy of contiguous float32 [n, classes] and targets of int64, without weights of
classes, smoothing or a cut along the classes; squared errors of float32 of one shape.
"""

from __future__ import annotations

import numpy as np

from gt import _kernels
from gt.worker.backend import Kernel
from gt.worker.native.values import FLOAT32, INT64, is_float32, is_rows
from gt.worker.reference.kernels import NUMPY
from gt.worker.reference.values import Array


def _is_plain(self: Array, target: Array, weight: Array | None, label_smoothing: float) -> bool:
    return (
        is_rows(self)
        and self.ndim == 2
        and self.size > 0
        and weight is None
        and label_smoothing == 0
        and target.ndim == 1
        and target.dtype is INT64
    )


def _cross_entropy(
    self: Array,
    target: Array,
    weight: Array | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> object:
    if not _is_plain(self, target, weight, label_smoothing):
        return NUMPY["cross_entropy"](
            self, target, weight, reduction, ignore_index, label_smoothing
        )
    log_probs, losses = np.empty(self.shape, FLOAT32), np.empty(target.shape, FLOAT32)
    target = np.ascontiguousarray(target)
    number = _kernels.cross_entropy(self, target, ignore_index, log_probs, losses)
    if reduction == "none":
        return losses, log_probs, np.zeros((), FLOAT32)
    count, total = np.asarray(number, FLOAT32), np.empty((), FLOAT32)
    _kernels.sum(losses, total, 1)
    return np.divide(total, count, out=total) if reduction == "mean" else total, log_probs, count


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
) -> object:
    is_plain = _is_plain(log_probs, target, weight, label_smoothing) and is_float32(grad)
    if not is_plain or start is not None:
        return NUMPY["cross_entropy_backward"](
            grad, log_probs, target, weight, total_weight, reduction, ignore_index,
            label_smoothing, start, total,
        )  # fmt: skip
    scale = grad / total_weight if reduction == "mean" else grad
    each = np.ascontiguousarray(np.broadcast_to(scale, target.shape), FLOAT32)
    out = np.empty(log_probs.shape, FLOAT32)
    left_out = np.where(target == ignore_index, -1, target)
    _kernels.cross_entropy_backward(log_probs, left_out, each, out)
    return out


def _are_alike(self: Array, target: Array) -> bool:
    return is_float32(self) and is_float32(target) and self.shape == target.shape and self.size > 0


def _mse_loss(self: Array, target: Array, reduction: str) -> object:
    if not _are_alike(self, target):
        return NUMPY["mse_loss"](self, target, reduction)
    squares = np.subtract(self, target, out=np.empty(self.shape, FLOAT32))
    np.square(squares, out=squares)
    if reduction == "none":
        return squares
    total = np.empty((), FLOAT32)
    _kernels.sum(squares, total, 1)
    return np.divide(total, self.size, out=total) if reduction == "mean" else total


def _mse_loss_backward(grad: Array, self: Array, target: Array, reduction: str) -> object:
    if not _are_alike(self, target) or not is_float32(grad):
        return NUMPY["mse_loss_backward"](grad, self, target, reduction)
    slope = np.subtract(self, target, out=np.empty(self.shape, FLOAT32))
    scale = np.float32(2 / self.size if reduction == "mean" else 2)
    return np.multiply(slope, grad * scale, out=slope)


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {
        "cross_entropy": _cross_entropy,
        "cross_entropy_backward": _cross_entropy_backward,
        "mse_loss": _mse_loss,
        "mse_loss_backward": _mse_loss_backward,
    }
