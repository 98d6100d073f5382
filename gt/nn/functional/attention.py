"""Scaled dot-product attention from matmul and softmax."""

from __future__ import annotations

import math
from typing import Any

import gt
from gt import _core
from gt._core import Tensor
from gt.errors import NotSupported
from gt.nn.functional.attention_checks import check_dtypes
from gt.nn.functional.layer import dropout
from gt.tensors.aten.call import call

# With fewer keys, the weights are not larger than the queries.
_DROPOUT_KEYS_MIN = 64
_SEEDS = 2**63 - 1
# A tensor of GT or of PyTorch.
Operand = Any


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.T * scale + mask) @ value.

    Args:
        query: [..., heads, t, k].
        key: [..., heads, s, k].
        value: [..., heads, s, v].
        attn_mask: Broadcasts to [..., heads, t, s]: bool (True takes part) or added to the scores.
        dropout_p: Probability of dropping an attention weight; always applied, as in PyTorch.
        is_causal: Position t sees positions up to t only; not together with attn_mask.
        scale: Factor of the scores; 1 / sqrt(k) if not given.
        enable_gqa: Allows fewer heads of key and value, which are repeated.

    Raises:
        RuntimeError: Dtypes that do not match; attn_mask together with is_causal; a probability
            outside of [0, 1]; a number of key or value heads that does not divide that of query.
    """
    if attn_mask is not None and is_causal:
        raise RuntimeError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
            "is_causal=True"
        )
    if not 0.0 <= dropout_p <= 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p:g}")
    check_dtypes(query, key, value, attn_mask)
    if enable_gqa:
        key, value = (_for_heads(x, query) for x in (key, value))
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    output = fused(
        query, key, value, attn_mask, is_causal=is_causal, dropout_p=dropout_p, scale=factor
    )
    if output is not None:
        return output
    mask = _causal(query, key.shape[-2]) if is_causal else attn_mask
    weights = attention_weights(query, key, mask, scale=factor)
    if mask is not None and mask.dtype != value.dtype and _core.autocast_region() is None:
        weights = weights.to(value.dtype)  # float32 if the mask is
    return dropout(weights, dropout_p) @ value  # [..., t, s] @ [..., s, v] -> [..., t, v]


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float,
) -> Tensor | None:
    """Attention as one instruction, which never holds the scores [b, h, t, s].

    Returns:
        None if no instruction fits: other than three or four dimensions or different head sizes, a
        mask that requires a gradient, integers, a worker without torch, or dropout of every weight
        or among few keys, whose matrix is small.
    """
    if query.ndim == key.ndim == value.ndim == 3 and (mask is None or mask.ndim <= 3):
        rows = mask.unsqueeze(0) if mask is not None and mask.ndim == 3 else mask
        q, k, v = (x.unsqueeze(0) for x in (query, key, value))  # [h, t, k] -> [1, h, t, k]
        batch = fused(q, k, v, rows, is_causal=is_causal, dropout_p=dropout_p, scale=scale)
        return None if batch is None else batch.squeeze(0)
    if not is_one_instruction(query, key, value, mask, dropout_p, boolean=gt.bool):
        return None
    seeds = seeds_of(query) if dropout_p else None
    options = (added(mask, query), seeds, is_causal, float(dropout_p), float(scale))
    try:
        output: Tensor = call("attention", (query, key, value, *options), {})[0]
    except NotSupported:
        return None
    return output


def is_one_instruction(
    query: Operand,
    key: Operand,
    value: Operand,
    mask: Operand | None,
    dropout_p: float,
    *,
    boolean: object,
) -> bool:
    """True if one instruction computes attention of such operands, of GT's or PyTorch's tensors.

    Args:
        query: [b, h, t, k] if an instruction is to exist.
        key: [b, h, s, k].
        value: [b, h, s, k].
        mask: Broadcasts to [b, h, t, s].
        dropout_p: Probability of dropping a weight.
        boolean: The dtype bool of the tensors' library.
    """
    if not _fits(query, key, value) or not _mask_fits(mask, query, key, boolean):
        return False
    return not dropout_p or (dropout_p != 1.0 and key.shape[2] >= _DROPOUT_KEYS_MIN)


def added(mask: Tensor | None, query: Tensor) -> Tensor | None:
    """A bool mask as numbers that are added to the scores."""
    if mask is None or mask.dtype == query.dtype:
        return mask
    return gt.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -math.inf)


def seeds_of(query: Tensor) -> Tensor:
    """A seed for each query, so that its dropout is equal in any shard; drawn with the query's
    layout.
    """
    return gt.randint_like(query.detach()[..., 0], 0, _SEEDS, dtype=gt.int64)


def _for_heads(source: Tensor, query: Tensor) -> Tensor:
    """Keys or values [..., g, s, k] repeated for each head of the queries: [..., heads, s, k]."""
    heads, groups = query.shape[-3], source.shape[-3]
    if groups == heads:
        return source
    if not groups or heads % groups:
        raise RuntimeError(
            "Number of heads in key and value must divide the number of heads in query"
        )
    return source.repeat_interleave(heads // groups, dim=-3)


def _fits(query: Operand, key: Operand, value: Operand) -> bool:
    shapes = [tuple(x.shape) for x in (query, key, value)]
    return (
        query.ndim == 4
        and shapes[1] == shapes[2]
        and (*shapes[0][:2], shapes[0][3]) == (*shapes[1][:2], shapes[1][3])
        and all(size > 0 for size in shapes[0] + shapes[1])
        and query.dtype.is_floating_point
        and query.dtype == key.dtype == value.dtype
    )


def _mask_fits(mask: Operand | None, query: Operand, key: Operand, boolean: object) -> bool:
    if mask is None:
        return True
    full = (*query.shape[:2], query.shape[2], key.shape[2])
    shape = tuple(mask.shape)
    return (
        not mask.requires_grad
        and mask.dtype in (boolean, query.dtype)
        and (
            shape == full[2:]
            or (len(shape) == 4 and all(a in (1, b) for a, b in zip(shape, full, strict=True)))
        )
    )


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, *, scale: float) -> Tensor:
    """softmax(query @ key.T * scale + mask); fully masked rows are 0."""
    scores = (query * scale) @ key.transpose(-2, -1)  # [..., t, k] @ [..., k, s] -> [..., t, s]
    if mask is None:
        return scores.softmax(-1)
    hidden = ~mask if mask.dtype == gt.bool else mask == -math.inf
    empty = hidden.all(dim=-1, keepdim=True)  # finite for the softmax, and set to 0 after it
    if mask.dtype == gt.bool:
        scores = scores.masked_fill(hidden & ~empty, -math.inf)
    else:
        scores = scores + mask.masked_fill(empty, 0.0)
    return scores.softmax(-1).masked_fill(empty, 0.0)


def _causal(query: Tensor, sources: int) -> Tensor:
    """True for sources up to the target's position; made on the query's workers."""
    size = (query.shape[-2], sources)
    # `query` is an operand so that the mask is made on its workers: without operands it would be
    # made on one worker and travel in every layer.
    return _core.call("full_like", query.detach(), size=size, value=True, dtype=gt.bool).tril()
