"""Rows of the family loss for torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gt.worker.backend import Kernel
from gt.worker.pytorch.shards import ShardRange, targets

_REDUCTION = {"none": 0, "mean": 1, "sum": 2}
_aten = torch.ops.aten
_nn = torch._C._nn  # noqa: SLF001  torch.nn.functional checks arguments again and costs as much as the kernel


def _flat(self: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Classes in dimension 1 and all later dimensions in one, as torch's kernel for images takes
    them.
    """
    batch, classes, *rest = self.shape
    pixels = math.prod(rest)  # not -1: a shard may be empty
    # [n, c, ...] -> [n, c, 1, d]
    return self.reshape(batch, classes, 1, pixels), target.reshape(batch, 1, pixels)


def _class_dim(scores: Tensor) -> int:
    return 0 if scores.dim() == 1 else 1


def _local(
    self: Tensor,
    target: Tensor,
    ignore_index: int,
    start: int | None = None,
    total: int | None = None,
) -> tuple[Tensor, int]:
    """Targets among the classes of this shard, and the index that stands for ignored ones."""
    if start is None:
        return target, ignore_index
    classes = self.shape[_class_dim(self)]
    return targets(target, ignore_index, classes, ShardRange.of(start, total)), -1


def _nll_loss(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    start: int | None = None,
    total: int | None = None,
) -> tuple[Tensor, Tensor]:
    target, ignore_index = _local(self, target, ignore_index, start, total)
    code = _REDUCTION[reduction]
    if self.dim() <= 2:
        return _aten.nll_loss_forward.default(self, target, weight, code, ignore_index)
    images, flat = _flat(self, target)
    loss, weights = _aten.nll_loss2d_forward.default(images, flat, weight, code, ignore_index)
    return loss.reshape(target.shape) if reduction == "none" else loss, weights


def _nll_loss_backward(
    grad: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    total_weight: Tensor,
    reduction: str,
    ignore_index: int,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    target, ignore_index = _local(self, target, ignore_index, start, total)
    code = _REDUCTION[reduction]
    if self.dim() <= 2:
        return _aten.nll_loss_backward.default(
            grad, self, target, weight, code, ignore_index, total_weight
        )
    images, flat = _flat(self, target)
    grad = grad.reshape(flat.shape) if reduction == "none" else grad
    out = _aten.nll_loss2d_backward.default(
        grad, images, flat, weight, code, ignore_index, total_weight
    )
    return out.reshape(self.shape)


def _by_class(weight: Tensor, scores: Tensor) -> Tensor:
    """Reshapes [c] to [c], [1, c] or [1, c, 1, ...]."""
    beside = [1] * scores.dim()
    beside[_class_dim(scores)] = -1
    return weight.reshape(beside)


def _cross_entropy(
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> tuple[Tensor, Tensor, Tensor]:
    dim = _class_dim(self)
    log_probs = self.log_softmax(dim)
    loss, total = _nll_loss(log_probs, target, weight, reduction, ignore_index)
    if label_smoothing:
        scores = log_probs if weight is None else log_probs * _by_class(weight, self)
        evenly = scores.sum(dim).neg_()
        evenly = evenly.masked_fill_((target == ignore_index).reshape(evenly.shape), 0)
        if reduction != "none":
            evenly = evenly.sum()
        if reduction == "mean":
            evenly = evenly / total
        loss = (1 - label_smoothing) * loss + label_smoothing / self.shape[dim] * evenly
    return loss, log_probs, total


def _cross_entropy_backward(
    grad: Tensor,
    log_probs: Tensor,
    target: Tensor,
    weight: Tensor | None,
    total_weight: Tensor,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    if start is not None:
        shard = ShardRange.of(start, total)
        share = _Share(grad, target, weight, total_weight, reduction, ignore_index)
        return _shard_backward(share, log_probs, label_smoothing, shard)
    dim = _class_dim(log_probs)
    args = (log_probs, target, weight, total_weight, reduction, ignore_index)
    if not label_smoothing:
        along = _nll_loss_backward(grad, *args)
    else:
        along = _nll_loss_backward(grad * (1 - label_smoothing), *args)
        share = _Share(grad, target, weight, total_weight, reduction, ignore_index)
        classes = log_probs.shape[dim]
        evenly = share.each(log_probs).unsqueeze(dim) * (label_smoothing / classes)
        along = along - (evenly if weight is None else evenly * _by_class(weight, log_probs))
    return torch._log_softmax_backward_data(along, log_probs, dim, log_probs.dtype)  # noqa: SLF001


class _Share:
    """Each target's share in the loss's gradient."""

    def __init__(
        self,
        grad: Tensor,
        target: Tensor,
        weight: Tensor | None,
        total_weight: Tensor,
        reduction: str,
        ignore_index: int,
    ) -> None:
        self.grad = grad / total_weight if reduction == "mean" else grad
        self.reduced = reduction != "none"
        self.target = target.to(torch.int64)
        self.weight = weight
        self.ignored = self.target == ignore_index

    def each(self, scores: Tensor) -> Tensor:
        """The gradient of each target's loss: 0 for ignored targets."""
        shape = list(scores.shape)
        del shape[_class_dim(scores)]
        ignored = self.ignored.reshape(shape)
        return self.grad.reshape(() if self.reduced else shape).masked_fill(ignored, 0)

    def weighted(self, scores: Tensor) -> Tensor:
        """The gradient of each target's loss, times the weight of the target's class."""
        each = self.each(scores)
        if self.weight is None:
            return each
        classes = self.target.masked_fill(self.ignored, 0)
        return each * self.weight[classes].reshape(each.shape)


def _shard_backward(
    share: _Share, log_probs: Tensor, label_smoothing: float, shard: ShardRange
) -> Tensor:
    """softmax - one-hot for the classes from `shard.start` on; `weight` covers all classes."""
    dim, weight = _class_dim(log_probs), share.weight
    size = log_probs.shape[dim]
    picked = share.weighted(log_probs).unsqueeze(dim) * (1 - label_smoothing)
    out = log_probs.exp()
    if label_smoothing:
        evenly = share.each(log_probs).unsqueeze(dim) * (label_smoothing / shard.total)
        weights = shard.total if weight is None else weight.sum()
        out.mul_(picked + evenly * weights)
        if weight is None:
            out.sub_(evenly)
        else:
            out.sub_(evenly * _by_class(weight.narrow(0, shard.start, size), log_probs))
    else:
        out.mul_(picked)
    local = share.target.reshape(picked.shape) - shard.start
    outside = (local < 0) | (local >= size) | share.ignored.reshape(picked.shape)
    if not size:
        return out
    hit = local.masked_fill_(outside, 0)
    return out.scatter_add_(dim, hit, picked.masked_fill(outside, 0).neg_().to(out.dtype))


def _mse_loss(self: Tensor, target: Tensor, reduction: str) -> Tensor:
    # torch's stub has the arguments of torch.nn.functional.
    loss = _nn.mse_loss(self, target, _REDUCTION[reduction])  # type: ignore[arg-type]
    # A sum or mean is still a view of the memory of all its terms.
    return loss if reduction == "none" else loss.clone()


def _mse_loss_backward(grad: Tensor, self: Tensor, target: Tensor, reduction: str) -> Tensor:
    return _aten.mse_loss_backward.default(grad, self, target, _REDUCTION[reduction])


def _smooth_l1_loss(self: Tensor, target: Tensor, reduction: str, beta: float) -> Tensor:
    loss = _aten.smooth_l1_loss.default(self, target, _REDUCTION[reduction], beta)
    return loss if reduction == "none" else loss.clone()  # as above


def _smooth_l1_loss_backward(
    grad: Tensor, self: Tensor, target: Tensor, reduction: str, beta: float
) -> Tensor:
    code = _REDUCTION[reduction]
    return _aten.smooth_l1_loss_backward.default(grad, self, target, code, beta)


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
