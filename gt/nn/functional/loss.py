"""Losses of numbers and distributions. `reduction` is "mean", "sum" or "none" throughout.

`size_average` and `reduce` are PyTorch's older form of `reduction`: True and False, or None.
"""

from __future__ import annotations

import math
import warnings

import gt
from gt import _core
from gt._core import Tensor
from gt.nn.functional.reduction import (
    checked_reduction,
    legacy_reduction,
    reduced,
    same_shape,
    weighted,
)
from gt.tensors.kept import keeps


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
    input, target = same_shape(input, target)
    if weight is None:
        return _core.call("mse_loss", input, target, reduction=checked_reduction(reduction))
    squares = _core.call("mse_loss", input, target, reduction="none") * weight
    return weighted(squares, weight, reduction)


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
    input, target = same_shape(input, target)
    distance = (input - target).abs()
    return (
        reduced(distance, reduction)
        if weight is None
        else weighted(distance * weight, weight, reduction)
    )


@keeps(input="input target", target="input target")
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
    if not beta >= 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    input, target = same_shape(input, target)
    if beta == 0:
        return reduced((input - target).abs(), reduction)
    return _smooth_l1(input, target, reduction, beta)


def _smooth_l1(input: Tensor, target: Tensor, reduction: str, beta: float) -> Tensor:
    attrs = {"reduction": checked_reduction(reduction), "beta": float(beta)}
    return _core.call("smooth_l1_loss", input, target, **attrs)


@keeps(input="input target", target="input target")
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Squared / 2 where the distance is below `delta`, else delta * (distance - delta / 2)."""
    if not delta > 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    input, target = same_shape(input, target)
    if delta == 1 and weight is None:
        return _smooth_l1(input, target, reduction, 1.0)
    distance = (input - _number(target, input)).abs()
    far = distance >= delta
    near = gt.where(far, 0.0, distance)  # no infinity, whose gradient would be NaN
    loss = gt.where(far, delta * (distance - 0.5 * delta), 0.5 * near * near)
    return (
        reduced(loss, reduction) if weight is None else weighted(loss * weight, weight, reduction)
    )


def _number(target: Tensor, input: Tensor) -> Tensor:
    """A bool target as numbers of the input's dtype, for a subtraction."""
    is_mixed = target.dtype == gt.bool and input.dtype.is_floating_point
    return target.to(input.dtype) if is_mixed else target


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
        size_average: PyTorch's older form of `reduction`, like `reduce`.
        reduce: See size_average.
        reduction: "mean", "sum", "none" or "batchmean".
        log_target: Whether `target` holds logarithms.
    """
    if size_average is None and reduce is None and reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition.'mean' will be changed to behave the same as 'batchmean' in the next major "
            "release.",
            stacklevel=3,
        )
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
    """The negative log likelihood of counts under a Poisson distribution with the given
    (log) rate.
    """
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
    """The negative log likelihood under a normal distribution with the given mean and variance.

    Args:
        input: The means.
        target: A tensor that broadcasts to the input's shape.
        var: The variances: a number, or the input's shape with one size 1 or without the last one.
            Their signs are not read (PyTorch refuses negative ones; here they count as `eps`).
        full: Whether to add the constant part.
        eps: Smallest variance.
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
