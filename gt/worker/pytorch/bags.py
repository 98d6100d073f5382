"""torch.embedding_bag with results of equal sizes on every device and for every layout.

Results except the first are notes of PyTorch's loop over the bags for the gradient. A faster loop
omits the bag of each index, and sums omit the bags' sizes; PyTorch chooses it by device, strides
and the table's requires_grad, and by more than its operator for tensors without values sees.
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
    """Bags, the bag of each index, the bags' sizes and the places of the largest.

    They are the results for a contiguous table on a CPU that requires no gradient.

    Args:
        weight: [rows, width].
        indices: [n], or two dimensions, which are flattened.
        offsets: [bags], the start of each bag in [n].
        scale_grad_by_freq: Divide each row's gradient by the row's count in `indices`.
        mode: 0 for sums, 1 for means, 2 for maxima.
        sparse: Accepted: gradients are dense.
        per_sample_weights: [n], factor of each row.
        include_last_offset: True if `offsets` ends with the length of the indices.
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
    """Refuses arguments for which PyTorch's loop reads beside the memory of the indices."""
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
