"""Sums, means and maxima of bags of rows: embedding_bag, without the rows in between."""

from __future__ import annotations

import math

import gt
from gt._core import Tensor
from gt.errors import NotSupported
from gt.nn.functional.layer import embedding
from gt.tensors.kept import keeps


@keeps(
    weight="input offsets per_sample_weights",
    per_sample_weights="input weight offsets per_sample_weights",
)
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """For each bag the sum, mean or maximum of the rows of `weight` that it names.

    Where several rows of a bag have the maximum, the first has its whole gradient.

    Args:
        input: [bags, n] indices, or [n] with offsets.
        weight: [rows, width].
        offsets: [bags], where each bag begins in [n].
        max_norm: Rows that are used and longer than this are first shortened to it, in place.
        norm_type: The p of that length.
        scale_grad_by_freq: Divide each row's gradient by how often `input` names it.
        mode: "sum", "mean" or "max"; an empty bag gives zeros.
        sparse: Accepted: gradients are dense.
        per_sample_weights: As `input`: what multiplies each row; of mode "sum".
        include_last_offset: Whether `offsets` ends with the length of the input.
        padding_idx: A row that no bag contains.

    Raises:
        ValueError: Shapes that do not fit, or another mode.
    """
    _check(input, weight, offsets, per_sample_weights)
    _check_mode(mode, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)
    if per_sample_weights is not None and mode != "sum":
        raise NotSupported(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
            f"for mode='sum' (got mode='{mode}'). Please open a feature request on GitHub."
        )
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise gt.errors.ShapeError("padding_idx must be within the number of embeddings")
    padding = None if padding_idx is None else padding_idx % weight.shape[0]
    rows = embedding(input, weight, padding, max_norm, norm_type, scale_grad_by_freq)
    if weight.dtype in (gt.float16, gt.bfloat16):  # summed in float32, as in PyTorch's kernel
        rows = rows.float()
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    is_counted = None if padding is None else (input != padding).unsqueeze(-1)
    if is_counted is not None:
        rows = gt.where(is_counted, rows, -math.inf if mode == "max" else 0.0)
    if offsets is None:
        return _of_equal_bags(rows, is_counted, mode).to(weight.dtype)
    bags = _of_bags(rows, is_counted, offsets, mode, ends_with_length=include_last_offset)
    return bags.to(weight.dtype)


def _of_equal_bags(rows: Tensor, kept: Tensor | None, mode: str) -> Tensor:
    """[bags, n, width] -> [bags, width]."""
    count, n, width = rows.shape
    if mode == "sum" or not n:
        return rows.sum(dim=1)
    if mode == "max":
        bags = gt.arange(count).unsqueeze(-1).expand(count, n).flatten()
        flat = rows.reshape(count * n, width)
        return _largest(flat, None if kept is None else kept.reshape(count * n, 1), bags, count)
    if kept is None:
        return rows.sum(dim=1) / n
    return rows.sum(dim=1) / kept.sum(dim=1).clamp(min=1).to(rows.dtype)


def _of_bags(
    rows: Tensor, kept: Tensor | None, offsets: Tensor, mode: str, *, ends_with_length: bool
) -> Tensor:
    """[n, width] -> [bags, width]."""
    count, (n, width) = offsets.shape[0] - ends_with_length, rows.shape
    starts = offsets[:count].long()
    # A bag's number is how many begin at or before an element, less one.
    begins = gt.zeros(n + 1, dtype=gt.int64).index_add(0, starts, gt.ones(count, dtype=gt.int64))
    bags = begins.cumsum(0)[:n] - 1
    if mode == "max":
        return _largest(rows, kept, bags, count)
    total = gt.zeros(count, width, dtype=rows.dtype).index_add(0, bags, rows)
    if mode == "sum":
        return total
    ones = gt.ones(n, 1, dtype=rows.dtype) if kept is None else kept.to(rows.dtype)
    members = gt.zeros(count, 1, dtype=rows.dtype).index_add(0, bags, ones)
    return total / members.clamp(min=1)


def _largest(rows: Tensor, kept: Tensor | None, bags: Tensor, count: int) -> Tensor:
    """The largest of each bag, zero in an empty one."""
    chosen = places_of_largest(rows.detach(), kept, bags, count)
    return gt.cat([rows, gt.zeros(1, rows.shape[1], dtype=rows.dtype)]).gather(0, chosen)


def places_of_largest(values: Tensor, kept: Tensor | None, bags: Tensor, count: int) -> Tensor:
    """[bags, width]: which row has the largest of a bag in each column; n in an empty bag.

    It is the first of those that are equal. As in PyTorch's loop, a NaN is the largest only where
    the bag begins with it.

    Args:
        values: [n, width], the rows of all bags.
        kept: [n, 1], the rows that are counted; None for all.
        bags: [n], the bag of each row.
        count: How many bags there are.
    """
    n, width = values.shape
    numbers = gt.arange(n).unsqueeze(-1)
    bags = bags.unsqueeze(-1)
    places = bags.expand(n, width)

    def first(where: Tensor, width: int) -> Tensor:
        """Number of the first row of each bag where `where` is true; `n` for a bag without one."""
        candidates = gt.where(where, numbers, n)
        return gt.full((count, width), n).scatter_reduce(0, places[:, :width], candidates, "amin")

    present = gt.ones(n, 1, dtype=gt.bool) if kept is None else kept
    begins = numbers == first(present, 1).gather(0, bags)
    values = gt.where(values.isnan() & ~begins, -math.inf, values)
    blank = gt.zeros(count, width, dtype=values.dtype)
    top = blank.scatter_reduce(0, places, values, "amax", include_self=False).gather(0, places)
    return first(present & ((values == top) | (values.isnan() & top.isnan())), width)


def _check(
    input: Tensor, weight: Tensor, offsets: Tensor | None, per_sample_weights: Tensor | None
) -> None:
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({_size(per_sample_weights)}) is not None, "
            f"then it must have the same shape as the input ({_size(input)})"
        )
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if input.ndim == 2 and offsets is not None:
        raise ValueError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
            "fixed length sequences. However, found offsets of type <class 'torch.Tensor'>"
        )
    if input.ndim == 1 and offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if input.ndim == 1 and offsets is not None and offsets.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if input.ndim not in (1, 2):
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}"
        )


def _check_mode(mode: str, *, scale_grad_by_freq: bool, sparse: bool) -> None:
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")


def _size(value: Tensor) -> str:
    return f"torch.Size({list(value.shape)})"
