"""Losses with a margin, over several classes or with a user's distance."""

from __future__ import annotations

from collections.abc import Callable

import gt
from gt._core import Tensor
from gt.errors import ShapeError
from gt.nn.functional.activation import logsigmoid
from gt.nn.functional.distance import pairwise_distance
from gt.nn.functional.reduction import checked_reduction, legacy_reduction, reduced
from gt.tensors.aten.call import call

# Numbers of the reductions in PyTorch's schemas.
REDUCTION_NUMBERS = {"none": 0, "mean": 1, "sum": 2}


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of max(0, margin - input[target] + input[class]) ** p.

    Args:
        input: [batch, classes] or [classes].
        target: [batch] or [], the correct classes.
        p: 1 or 2.
        margin: The margin in the formula.
        weight: [classes], factor of each target's loss.
        size_average: PyTorch's older form of `reduction`, like `reduce`.
        reduce: See size_average.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: Another `p`, or a weight of several dimensions.
    """
    number = REDUCTION_NUMBERS[checked_reduction(legacy_reduction(size_average, reduce, reduction))]
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    loss: Tensor = call("multi_margin_loss", (input, target, p, margin, weight, number), {})
    return loss


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The sum of max(0, 1 - input[right] + input[wrong]) over classes, divided by their number.

    Args:
        input: [batch, classes] or [classes].
        target: [batch, classes] or [classes]: the correct classes, up to the first -1.
        size_average: PyTorch's older form of `reduction`, like `reduce`.
        reduce: See size_average.
        reduction: "mean", "sum" or "none".
    """
    reduction = checked_reduction(legacy_reduction(size_average, reduce, reduction))
    number = REDUCTION_NUMBERS[reduction]
    # One sample gets a batch dimension: for it PyTorch declares another shape than it computes.
    single = input.ndim == target.ndim == 1 and input.numel() > 0
    operands = (input.unsqueeze(0), target.unsqueeze(0)) if single else (input, target)
    loss: Tensor = call("multilabel_margin_loss", (*operands, number), {})
    return loss.squeeze(0) if single and reduction == "none" else loss


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The cross entropy of sigmoid(input) against 0 and 1, as a mean over classes.

    Args:
        input: [..., classes].
        target: [..., classes], 0 or 1.
        weight: Factor of each class's loss; broadcasts to the input.
        size_average: PyTorch's older form of `reduction`, like `reduce`.
        reduce: See size_average.
        reduction: "mean", "sum" or "none".
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    loss = loss.sum(dim=-1) / input.shape[-1]
    if reduction not in REDUCTION_NUMBERS:
        raise ValueError(f"{reduction} is not valid")
    return reduced(loss, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin + distance(anchor, positive) - distance(anchor, negative)).

    Args:
        anchor: Any shape that `distance_function` takes.
        positive: The tensor that should be near.
        negative: The tensor that should be far.
        distance_function: A function of two tensors; pairwise_distance if not given.
        margin: Minimum difference of the distances.
        swap: Whether the negative's distance is from the positive if that is smaller.
        reduction: "mean", "sum" or "none".

    Raises:
        ValueError: A margin of 0 or less.
        ShapeError: Tensors of different numbers of dimensions.
    """
    checked_reduction(reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise ShapeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative "
            f"{negative.ndim}D inputs"
        )
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = gt.minimum(far, distance(positive, negative))
    return reduced((margin + near - far).clamp(min=0), reduction)
