"""Scaled dot-product attention from matmul and softmax."""

from __future__ import annotations

import math

import gt
from gt import _core
from gt._core import Tensor
from gt.aten.call import call
from gt.errors import NotSupported
from gt.nn.functional.layer import dropout


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
        scale: Of the scores; 1 / sqrt(k) if not given.
        enable_gqa: Heads of key and value may be fewer and are repeated.

    Raises:
        RuntimeError: attn_mask and is_causal together.
    """
    if attn_mask is not None and is_causal:
        raise RuntimeError("Explicit attn_mask should not be set when is_causal=True")
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], dim=-3)
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    if not dropout_p:
        output = fused(query, key, value, attn_mask, is_causal=is_causal, scale=factor)
        if output is not None:
            return output
    mask = _causal(query, key.shape[-2]) if is_causal else attn_mask
    weights = attention_weights(query, key, mask, scale=factor)
    return dropout(weights, dropout_p) @ value  # [..., t, s] @ [..., s, v] -> [..., t, v]


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    is_causal: bool = False,
    scale: float,
) -> Tensor | None:
    """Attention as one instruction, which never holds the scores [b, h, t, s].

    Returns:
        None where that is not there: other than four dimensions or one width of heads, a mask that
        requires a gradient, whole numbers, or a worker without torch.
    """
    if not _fits(query, key, value) or not _mask_fits(mask, query, key):
        return None
    if mask is not None and mask.dtype != query.dtype:
        mask = gt.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -math.inf)
    try:
        output: Tensor = call("attention", (query, key, value, mask, is_causal, scale), {})[0]
    except NotSupported:
        return None
    return output


def _fits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    shapes = [tuple(x.shape) for x in (query, key, value)]
    return (
        query.ndim == 4
        and shapes[1] == shapes[2]
        and (*shapes[0][:2], shapes[0][3]) == (*shapes[1][:2], shapes[1][3])
        and all(size > 0 for size in shapes[0] + shapes[1])
        and query.dtype.is_floating_point
        and query.dtype == key.dtype == value.dtype
    )


def _mask_fits(mask: Tensor | None, query: Tensor, key: Tensor) -> bool:
    if mask is None:
        return True
    full = (*query.shape[:2], query.shape[2], key.shape[2])
    shape = tuple(mask.shape)
    return (
        not mask.requires_grad
        and mask.dtype in (gt.bool, query.dtype)
        and (
            shape == full[2:]
            or (len(shape) == 4 and all(a in (1, b) for a, b in zip(shape, full, strict=True)))
        )
    )


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, *, scale: float) -> Tensor:
    """softmax(query @ key.T * scale + mask); rows that the mask hides whole are 0."""
    scores = (query * scale) @ key.transpose(-2, -1)  # [..., t, k] @ [..., k, s] -> [..., t, s]
    if mask is None:
        return scores.softmax(-1)
    hidden = ~mask if mask.dtype == gt.bool else mask == -math.inf
    empty = hidden.all(dim=-1, keepdim=True)  # stays finite in the softmax, and becomes 0 after it
    if mask.dtype == gt.bool:
        scores = scores.masked_fill(hidden & ~empty, -math.inf)
    else:
        scores = scores + mask.masked_fill(empty, 0.0)
    return scores.softmax(-1).masked_fill(empty, 0.0)


def _causal(query: Tensor, sources: int) -> Tensor:
    """True where a source does not stand after its target; made where the query is."""
    size = (query.shape[-2], sources)
    # What has no operands is made on one worker, from where it would travel in every layer.
    return _core.call("full_like", query.detach(), size=size, value=True, dtype=gt.bool).tril()
