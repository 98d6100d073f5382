"""Losses of classes, two or many. `reduction` is "mean", "sum" or "none" throughout."""

from __future__ import annotations

import math

from gt import _core
from gt._core import Tensor, call
from gt.composite.casts import TENSOR_CLASSES
from gt.errors import DtypeError
from gt.nn.functional.activation import logsigmoid, minus_logsigmoid
from gt.nn.functional.reduction import checked_reduction, legacy_reduction, reduced, size_text
from gt.tensors.kept import keeps


@keeps(input="input target weight")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-input[target] for each element: the negative log likelihood.

    Args:
        input: Log probabilities, [c], [n, c] or [n, c, ...].
        target: Class indices, the shape of `input` without c.
        weight: [c], a factor for each class; the mean is over the weights.
        size_average: PyTorch's older form of `reduction`, like `reduce`.
        ignore_index: A target that contributes nothing.
        reduce: See size_average.
        reduction: "mean", "sum" or "none".
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    shape = target.shape
    if input.ndim == 1:
        input, target = input.unsqueeze(0), target.unsqueeze(0)
    elif input.ndim > 2:  # [n, c, ...] -> [n, ..., c] -> [n * ..., c]
        input = input.movedim(1, -1).reshape(-1, input.shape[1])
        target = target.reshape(-1)
    attrs = {"reduction": checked_reduction(reduction), "ignore_index": ignore_index}
    loss, _ = _core.call("nll_loss", input, target, weight, **attrs)
    return loss.reshape(shape) if reduction == "none" and loss.shape != shape else loss


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The negative log likelihood of softmax(input).

    Args:
        input: Scores, [c], [n, c] or [n, c, ...].
        target: Class indices, the shape of `input` without c; or probabilities, of its shape.
        weight: [c], a factor for each class.
        size_average: PyTorch's older form of `reduction`, like `reduce`.
        ignore_index: A target that contributes nothing; only with class indices.
        reduce: See size_average.
        reduction: "mean", "sum" or "none".
        label_smoothing: Fraction of the target that is spread evenly over the classes, 0 to 1.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    class_dim = 0 if input.ndim == 1 else 1
    if target.is_floating_point() and target.shape != input.shape:
        kind = TENSOR_CLASSES[repr(target.dtype)].removesuffix("Tensor")
        raise DtypeError(f"expected target dtype to be Long or Byte, but got {kind}")
    weight_matters = label_smoothing > 0.0 and weight is not None and weight.requires_grad
    if not target.is_floating_point() and not weight_matters:
        attrs = {"reduction": checked_reduction(reduction), "ignore_index": ignore_index}
        attrs |= {"label_smoothing": label_smoothing}
        return _core.call("cross_entropy", input, target, weight, **attrs)[0]
    log_probs = input.log_softmax(class_dim)
    if target.is_floating_point():
        return _soft_cross_entropy(log_probs, target, weight, class_dim, reduction, label_smoothing)
    # The even part has a gradient for the weight.
    loss = nll_loss(log_probs, target, weight, ignore_index=ignore_index, reduction=reduction)
    evenly = _smooth_part(log_probs, target, weight, class_dim, ignore_index, reduction)
    return (1 - label_smoothing) * loss + label_smoothing / input.shape[class_dim] * evenly


def _soft_cross_entropy(
    log_probs: Tensor,
    target: Tensor,
    weight: Tensor | None,
    class_dim: int,
    reduction: str,
    label_smoothing: float,
) -> Tensor:
    if label_smoothing > 0.0:
        target = target * (1 - label_smoothing) + label_smoothing / log_probs.shape[class_dim]
    product = log_probs * target
    if weight is not None:
        product = product * _per_class(weight, log_probs, class_dim)
    if reduction == "none":
        return -product.sum(dim=class_dim)
    if reduction == "sum":
        return -product.sum()
    count = math.prod(log_probs.shape) // max(log_probs.shape[class_dim], 1)
    return -product.sum() / count


def _smooth_part(
    log_probs: Tensor,
    target: Tensor,
    weight: Tensor | None,
    class_dim: int,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """The loss against the even distribution, times the number of classes."""
    weighted = log_probs if weight is None else log_probs * _per_class(weight, log_probs, class_dim)
    ignored = target == ignore_index
    loss = (-weighted.sum(dim=class_dim)).masked_fill(ignored, 0.0)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if weight is None:
        return loss.sum() / (~ignored).sum()
    of_targets = weight[target.masked_fill(ignored, 0)].masked_fill(ignored, 0.0)
    return loss.sum() / of_targets.sum()


def _per_class(weight: Tensor, input: Tensor, class_dim: int) -> Tensor:
    """[c] reshaped to [1, c, 1, ...], to multiply `input`."""
    return weight.reshape(*(-1 if dim == class_dim else 1 for dim in range(input.ndim)))


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(target * log(input) + (1 - target) * log(1 - input)), each logarithm at least -100.

    An input outside of 0 to 1 raises when the result is read; on a GPU the result is NaN.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.shape != input.shape:
        raise ValueError(
            f"Using a target size ({size_text(target)}) that is different to the input size "
            f"({size_text(input)}) is deprecated. Please ensure they have the same size."
        )
    loss = call("binary_cross_entropy", input, target)
    return reduced(loss if weight is None else loss * weight, reduction)


@keeps(input="input target weight pos_weight", target="input target weight pos_weight")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy of sigmoid(input), computed stably.

    `pos_weight` multiplies the positive part.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.shape != input.shape:
        raise ValueError(
            f"Target size ({size_text(target)}) must be the same as input size ({size_text(input)})"
        )
    away = (1 - target) * input
    if pos_weight is None:
        loss = away + minus_logsigmoid(input)
    else:
        loss = away - ((pos_weight - 1) * target + 1) * logsigmoid(input)
    return reduced(loss if weight is None else loss * weight, reduction)


@keeps(input="input target")
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target * input))."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return reduced((-(input * target)).exp().log1p(), reduction)
