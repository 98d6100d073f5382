"""Bags of embeddings: their sums and means as PyTorch records them, and their gradients."""

from __future__ import annotations

from collections.abc import Callable

import gt
from gt import _core
from gt._core import Tensor
from gt.errors import NotSupported
from gt.nn import functional as F

_MODES = ("sum", "mean", "max")
_MAX = 2


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, ...]:
    """The bags [b, d], the bag of each index, the number of indices in each bag, and no maxima."""
    del scale_grad_by_freq, sparse  # these concern the gradient
    bags = F.embedding_bag(
        indices,
        weight,
        offsets,
        mode=_MODES[mode],
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=None if padding_idx < 0 else padding_idx,
    )
    starts = offsets[:-1] if include_last_offset else offsets
    places = gt.arange(indices.shape[0], dtype=starts.dtype)
    bag_of = gt.searchsorted(starts, places, right=True) - 1
    is_counted = gt.ones_like(bag_of) if padding_idx < 0 else (indices != padding_idx).long()
    sizes = gt.zeros(starts.shape[0], dtype=bag_of.dtype).index_add(0, bag_of, is_counted)
    return bags, bag_of, sizes, gt.zeros_like(sizes)


def dense_backward(
    grad: Tensor,
    indices: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of the table."""
    del maximum_indices
    _refuse_maxima(mode)
    rows = grad[offset2bag]  # [n, d]
    if mode == 1:
        rows = rows / bag_size[offset2bag].to(rows.dtype).unsqueeze(-1)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if scale_grad_by_freq:
        counts = indices.bincount(minlength=num_weights)
        rows = rows / counts[indices].to(rows.dtype).unsqueeze(-1)
    padding = None if padding_idx < 0 else padding_idx
    return _core.call(
        "embedding_backward", rows, indices, num_weights=num_weights, padding_idx=padding
    )


def backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of the table, for an operator that could give a sparse one."""
    del offsets
    if sparse:
        raise NotSupported("aten::_embedding_bag_backward: sparse=True gives no dense gradient")
    rest = (num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx)
    return dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, *rest)


def weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of a sum's per-sample weights."""
    del offsets
    _refuse_maxima(mode)
    found = (grad[offset2bag] * weight[indices]).sum(-1)
    return found if padding_idx < 0 else found.masked_fill(indices == padding_idx, 0.0)


def _refuse_maxima(mode: int) -> None:
    if mode == _MAX:
        raise NotSupported(
            "aten::_embedding_bag with mode='max' has no gradient on the device mux: take "
            "embedding(...).max of each bag"
        )


FUNCTIONS: dict[str, Callable[..., object]] = {
    "_embedding_bag": embedding_bag,
    "_embedding_bag_forward_only": embedding_bag,
    "_embedding_bag_backward": backward,
    "_embedding_bag_dense_backward": dense_backward,
    "_embedding_bag_per_sample_weights_backward": weights_backward,
}
