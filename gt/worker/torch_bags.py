"""torch.embedding_bag, whose results have the same sizes on every device and for every layout.

Results but the first are what PyTorch's loop over the bags writes down for the gradient. A quick
loop does without the bag of each index, and sums without the bags' sizes; PyTorch chooses that by
device, strides and whether the table requires a gradient, and by more than its operator for tensors
without values knows.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SUM, _MAX = 0, 2
_QUICK = (torch.float32, torch.float16, torch.bfloat16)


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Bags, the bag of each index, the bags' sizes and places of the largest.

    They are those of a contiguous table on a CPU that requires no gradient.

    Args:
        weight: [rows, width].
        indices: [n], or of two dimensions, which are taken as one.
        offsets: [bags], where each bag begins in [n].
        scale_grad_by_freq: Divide each row's gradient by how often `indices` names it.
        mode: 0 sums, 1 takes means, 2 the largest.
        sparse: Accepted: gradients are dense.
        per_sample_weights: [n], what multiplies each row.
        include_last_offset: Whether `offsets` ends with the length of the indices.
        padding_idx: A row that no bag contains.
    """
    del sparse
    _check(indices, offsets)
    # Flat: with indices of two dimensions PyTorch's loop writes beside the memory of its results.
    indices = indices.flatten()
    kind = torch.promote_types(indices.dtype, offsets.dtype)
    weights = None if per_sample_weights is None else per_sample_weights.contiguous()
    bags, bag_of_index, sizes, largest = torch.embedding_bag(
        weight.contiguous(), indices.to(kind), offsets.to(kind), scale_grad_by_freq, mode,
        False, weights, include_last_offset, padding_idx,
    )  # fmt: skip
    if mode == _SUM and padding_idx is None and weight.dtype in _QUICK:
        bag_of_index = bag_of_index[:0]
    if mode == _SUM:
        sizes = torch.zeros_like(offsets, dtype=kind)
    if mode != _MAX:
        largest = sizes.clone()
    return bags, bag_of_index, sizes, largest


def _check(indices: Tensor, offsets: Tensor) -> None:
    """Refuses what PyTorch's loop reads beside the memory of the indices for."""
    if indices.dim() not in {1, 2}:
        text = "input has to be a 1D or 2D Tensor, but got Tensor of dimension"
        raise RuntimeError(f"{text} {indices.dim()}")
    if offsets.dim() != 1:
        text = "offsets has to be a 1D Tensor, but got Tensor of dimension"
        raise RuntimeError(f"{text} {offsets.dim()}")
    if indices.numel() and not offsets.numel():
        raise RuntimeError(f"embedding_bag: {indices.numel()} indices, but no offset of a bag")
    if not offsets.is_meta and bool((offsets.diff() < 0).any()):
        raise RuntimeError("embedding_bag: offsets must not decrease")
