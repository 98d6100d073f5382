"""Helpers of the losses: their reduction, and shapes that must agree.

`size_average` and `reduce` are PyTorch's older form of `reduction`: True and False, or None.
"""

from __future__ import annotations

import warnings

import gt
from gt._core import Tensor


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """`reduction`, or the one that PyTorch's two older arguments stand for."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def checked_reduction(reduction: str) -> str:
    """`reduction`, checked to be one of the three."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The mean or sum of the loss, or the loss itself."""
    if checked_reduction(reduction) == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def weighted(loss: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """A loss already multiplied by `weight`, reduced; its mean is over the weights."""
    if checked_reduction(reduction) == "mean":
        return loss.sum() / weight.expand(loss.shape).sum()
    return reduced(loss, reduction)


def size_text(value: Tensor) -> str:
    """The shape as PyTorch's errors print it."""
    return f"torch.Size({list(value.shape)})"


def same_shape(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both tensors broadcast to one shape, with PyTorch's warning if they differ."""
    if input.shape == target.shape:
        return input, target
    warnings.warn(
        f"Using a target size ({size_text(target)}) that is different to the input size "
        f"({size_text(input)}). This will likely lead to incorrect results due to "
        "broadcasting. Please ensure they have the same size.",
        stacklevel=3,
    )
    pairs = gt.broadcast_tensors(input, target)
    return pairs[0], pairs[1]
