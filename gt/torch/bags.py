"""Bags of embeddings: their sums and means as PyTorch records them, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import gt
from gt import _core
from gt._core import Tensor
from gt.errors import NotSupported
from gt.nn import functional as F
from gt.nn.functional.bag import places_of_largest

_MODES = ("sum", "mean", "max")
_SUM, _MAX = 0, 2


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
    """The bags [b, d], the bag of each index, how many indices each bag has, rows of the maxima.

    Rows [b, d] say which row of the table has the maximum, 0 in an empty bag; without maxima they
    are zeros.
    """
    del scale_grad_by_freq, sparse  # of the gradient
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
    if mode != _MAX:
        return bags, bag_of, sizes, gt.zeros_like(sizes)
    counted = None if padding_idx < 0 else (indices != padding_idx).unsqueeze(-1)
    rows = weight.detach()[indices]
    if counted is not None:
        rows = gt.where(counted, rows, -math.inf)
    places = places_of_largest(rows, counted, bag_of, starts.shape[0])
    none = gt.zeros(1, dtype=indices.dtype)
    return bags, bag_of, sizes, gt.cat([indices, none])[places]


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
    if mode == _MAX:
        source = gt.where((bag_size > 0).unsqueeze(-1), grad, 0.0)
        blank = gt.zeros(num_weights, grad.shape[1], dtype=grad.dtype)
        return blank.scatter_add(0, maximum_indices.long(), source)
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


def backward(args: Sequence[Any], kwargs: Mapping[str, object]) -> object:
    """`aten::_embedding_bag_backward`: a sparse gradient is PyTorch's composition."""
    operators = torch.ops.aten
    grad, indices, offsets, offset2bag, bag_size, maxima, *rest = args
    sparse = rest.pop(3)
    if sparse:
        parts = (grad, indices, offsets, offset2bag, bag_size)
        return operators._embedding_bag_sparse_backward(*parts, *rest, **kwargs)  # noqa: SLF001
    parts = (grad, indices, offset2bag, bag_size, maxima)
    return operators._embedding_bag_dense_backward(*parts, *rest, **kwargs)  # noqa: SLF001


def weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of the weights of a sum's samples."""
    del offsets
    if mode != _SUM:
        raise NotSupported(
            "embedding_bag_backward: per_sample_weights only supported for mode='sum'"
        )
    gradient = (grad[offset2bag] * weight[indices]).sum(-1)
    return gradient if padding_idx < 0 else gradient.masked_fill(indices == padding_idx, 0.0)


WHOLE: dict[str, Callable[..., object]] = {"_embedding_bag_backward": backward}
FUNCTIONS: dict[str, Callable[..., object]] = {
    "_embedding_bag": embedding_bag,
    "_embedding_bag_forward_only": embedding_bag,
    "_embedding_bag_dense_backward": dense_backward,
    "_embedding_bag_per_sample_weights_backward": weights_backward,
}
