"""Loss functions. `reduction` is "mean", "sum" or "none" throughout.

`size_average` and `reduce` are PyTorch's older way to say it: True and False, or None.
"""

from __future__ import annotations

import math
import warnings

import gt
from gt import _core
from gt._core import Tensor
from gt.composite.casts import TENSOR_CLASSES
from gt.errors import DtypeError, ShapeError
from gt.nn.functional.activation import logsigmoid
from gt.nn.functional.distance import cosine_similarity, pairwise_distance


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """(input - target) ** 2, reduced; with `weight` the mean is over the weights."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    input, target = _same_shape(input, target)
    if weight is None:
        return _core.call("mse_loss", input, target, reduction=checked_reduction(reduction))
    squares = _core.call("mse_loss", input, target, reduction="none") * weight
    return _weighted(squares, weight, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """|input - target|, reduced; with `weight` the mean is over the weights."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    input, target = _same_shape(input, target)
    distance = (input - target).abs()
    return (
        reduced(distance, reduction)
        if weight is None
        else _weighted(distance * weight, weight, reduction)
    )


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Squared / (2 beta) where the distance is below `beta`, else the distance - beta / 2."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss does not support negative values for beta, got {beta}")
    input, target = _same_shape(input, target)
    if beta == 0:
        return reduced((input - target).abs(), reduction)
    distance = (input - target).abs()
    loss = gt.where(distance < beta, 0.5 * distance * distance / beta, distance - 0.5 * beta)
    return reduced(loss, reduction)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Squared / 2 where the distance is below `delta`, else delta * (distance - delta / 2)."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    input, target = _same_shape(input, target)
    distance = (input - target).abs()
    loss = gt.where(distance < delta, 0.5 * distance * distance, delta * (distance - 0.5 * delta))
    return (
        reduced(loss, reduction) if weight is None else _weighted(loss * weight, weight, reduction)
    )


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-input[target] per element: the negative log likelihood.

    Args:
        input: Log probabilities, [c], [n, c] or [n, c, ...].
        target: Class indices, the shape of `input` without c.
        weight: [c], a factor per class; the mean is over the weights.
        size_average: PyTorch's old way to say `reduction`, as `reduce` is.
        ignore_index: A target that counts nothing.
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
        weight: [c], a factor per class.
        size_average: PyTorch's old way to say `reduction`, as `reduce` is.
        ignore_index: A target that counts nothing; only with class indices.
        reduce: See size_average.
        reduction: "mean", "sum" or "none".
        label_smoothing: How much of the target is spread evenly over the classes, 0 to 1.
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


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """-(target * log(input) + (1 - target) * log(1 - input)), each logarithm at least -100.

    Where input is exactly 0 or 1 its gradient is 0 (PyTorch's is up to 1e12, which sigmoid's
    gradient of 0 then cancels).
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.shape != input.shape:
        raise ValueError(
            f"Using a target size ({_size(target)}) that is different to the input size "
            f"({_size(input)}) is deprecated. Please ensure they have the same size."
        )
    loss = -(target * _bounded_log(input) + (1 - target) * _bounded_log(1 - input))
    return reduced(loss if weight is None else loss * weight, reduction)


def _bounded_log(value: Tensor) -> Tensor:
    """log(value), at least -100, with gradient 0 at value = 0."""
    positive = value > 0
    return gt.where(positive, gt.where(positive, value, 1.0).log().clamp(min=-100.0), -100.0)


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
            f"Target size ({_size(target)}) must be the same as input size ({_size(input)})"
        )
    positive = logsigmoid(input)
    if pos_weight is not None:
        positive = ((pos_weight - 1) * target + 1) * positive
    loss = (1 - target) * input - positive
    return reduced(loss if weight is None else loss * weight, reduction)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target * (log(target) - input), reduced; "batchmean" divides the sum by the first size.

    Args:
        input: Log probabilities.
        target: Probabilities, or their logarithms.
        size_average: PyTorch's old way to say `reduction`, as `reduce` is.
        reduce: See size_average.
        reduction: "mean", "sum", "none" or "batchmean".
        log_target: Whether `target` holds logarithms.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    loss = target.exp() * (target - input) if log_target else target.xlogy(target) - target * input
    if reduction == "batchmean":
        return loss.sum() / input.shape[0] if input.ndim else loss
    return reduced(loss, reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of counts under a Poisson distribution with this (log) rate."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    rate, log_rate = (input.exp(), input) if log_input else (input, (input + eps).log())
    loss = rate - target * log_rate
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0.0)
    return reduced(loss, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood under a normal distribution with this mean and variance.

    Args:
        input: The means.
        target: Of the input's shape, or broadcasting to it.
        var: The variances: a number, or the input's shape with one size 1 or the last one left
            out. Their signs are not read (PyTorch refuses negative ones; here they are `eps`).
        full: Whether to add the constant part.
        eps: The least variance.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: A `var` of another shape, or a negative number.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    if isinstance(var, float):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * gt.ones_like(input).detach()
    if var.shape != input.shape:
        pairs = zip(input.shape, var.shape, strict=False)
        others = [n for m, n in pairs if m != n]
        if var.shape == input.shape[:-1]:
            var = var.unsqueeze(-1)
        elif var.ndim != input.ndim or sum(others) != 1:
            raise ValueError("var is of incorrect size")
    variance = gt.where(var < eps, eps, var)
    loss = 0.5 * (variance.log() + (input - target) ** 2 / variance)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """input where target is 1, max(0, margin - input) where it is -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    apart = gt.where(target != 1, (margin - input).clamp(min=0.0), 0.0)
    return reduced(apart + gt.where(target != -1, input, 0.0), reduction)


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target * (input1 - input2) + margin)."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {_size(input1)}, input2: {_size(input2)}, target: {_size(target)} "
        )
    return reduced((-target * (input1 - input2) + margin).clamp(min=0.0), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, |anchor - positive| - |anchor - negative| + margin) of p-norms.

    With `swap` the negative counts from the positive where it is nearer to that.

    Raises:
        ValueError: A margin of 0 or less.
        ShapeError: Tensors of different numbers of dimensions.
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative "
            f"{negative.ndim}D inputs"
        )
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = gt.minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduced((near - far + margin).clamp(min=0.0), reduction)


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


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cosine where target is 1, max(0, cosine - margin) where it is -1."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    cosine = cosine_similarity(input1, input2, dim=-1)
    apart = gt.where(target == -1, (cosine - margin).clamp(min=0.0), 0.0)
    return reduced(gt.where(target == 1, 1 - cosine, 0.0) + apart, reduction)


# ---- helpers ----


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """`reduction`, or what PyTorch's two older arguments say."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def checked_reduction(reduction: str) -> str:
    """`reduction`, if it is one of the three."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The loss's mean or sum, or the loss."""
    if checked_reduction(reduction) == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def _weighted(loss: Tensor, weight: Tensor, reduction: str) -> Tensor:
    if checked_reduction(reduction) == "mean":
        return loss.sum() / weight.expand(loss.shape).sum()
    return reduced(loss, reduction)


def _per_class(weight: Tensor, input: Tensor, class_dim: int) -> Tensor:
    """[c] -> [1, c, 1, ...], so that it multiplies `input`."""
    return weight.reshape(*(-1 if dim == class_dim else 1 for dim in range(input.ndim)))


def _size(value: Tensor) -> str:
    return f"torch.Size({list(value.shape)})"


def _same_shape(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both broadcast to one shape, with PyTorch's warning where they differ."""
    if input.shape == target.shape:
        return input, target
    warnings.warn(
        f"Using a target size ({_size(target)}) that is different to the input size "
        f"({_size(input)}). This will likely lead to incorrect results due to "
        "broadcasting. Please ensure they have the same size.",
        stacklevel=3,
    )
    pairs = gt.broadcast_tensors(input, target)
    return pairs[0], pairs[1]
