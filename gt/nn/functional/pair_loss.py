"""Losses of pairs and triplets that belong together or apart.

`reduction` is "mean", "sum" or "none" throughout.
"""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.errors import ShapeError
from gt.nn.functional.distance import pairwise_distance
from gt.nn.functional.reduction import legacy_reduction, reduced, size_text


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
    apart = gt.where(target != 1, (float(margin) - input).clamp(min=0.0), 0.0)
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
            f"input1: {size_text(input1)}, input2: {size_text(input2)}, "
            f"target: {size_text(target)} "
        )
    return reduced((-target * (input1 - input2) + float(margin)).clamp(min=0.0), reduction)


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

    With `swap` the negative's distance is from the positive if that is smaller.

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
    first, second = ((x * x).sum(dim=-1) + 1e-12 for x in (input1, input2))
    cosine = (input1 * input2).sum(dim=-1) / (first * second).sqrt()
    apart = gt.where(target == -1, (cosine - float(margin)).clamp(min=0.0), 0.0)
    return reduced(gt.where(target == 1, 1 - cosine, 0.0) + apart, reduction)
