"""Attention with several heads between linear layers, as a function of all its weights."""

from __future__ import annotations

import math

import gt
from gt import _core
from gt._core import Tensor
from gt.nn.functional.attention import attention_weights, fused
from gt.nn.functional.attention_checks import check_heads
from gt.nn.functional.layer import dropout, linear, pad


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The attended values, and the attention's weights if they are wanted.

    Fully masked rows of scores have weights of 0 (PyTorch's are NaN if the weights are wanted).
    Arguments that are not listed are those of MultiheadAttention.

    Args:
        query: [t, batch, d] or [t, d]; key and value likewise, with s for t.
        in_proj_weight: [3 * d, d]; use_separate_proj_weight uses the three others instead.
        bias_k: [1, 1, d], an extra key in each batch; bias_v is its value.
        static_k: [batch * heads, s, d / heads] in place of the projected keys; static_v is alike.

    Raises:
        AssertionError: Shapes that do not fit.
        RuntimeError: is_causal without attn_mask.
    """
    masks = (attn_mask, key_padding_mask)
    flags = {"is_causal": is_causal, "is_separate": use_separate_proj_weight}
    check_heads([query, key, value], masks, embed_dim_to_check, num_heads, **flags)
    batched = query.ndim == 3
    weights: tuple[Tensor | None, ...] = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight:
        assert in_proj_weight is not None, "in_proj_weight is None"
        weights = in_proj_weight.chunk(3)
    joined, shares = attend(
        _projected([query, key, value], weights, in_proj_bias),
        num_heads,
        bias=None if bias_k is None or bias_v is None else (bias_k, bias_v),
        static=(static_k, static_v),
        add_zero_attn=add_zero_attn,
        masks=masks,
        dropout_p=dropout_p if training else 0.0,
        need_weights=need_weights,
    )
    output = linear(joined, out_proj_weight, out_proj_bias)
    output = output.transpose(0, 1) if batched else output.squeeze(0)
    if shares is None or not need_weights:
        return output, None
    shown = shares.mean(dim=1) if average_attn_weights else shares
    return output, shown if batched else shown.squeeze(0)


def _projected(
    operands: list[Tensor], weights: tuple[Tensor | None, ...], bias: Tensor | None
) -> list[Tensor]:
    """[t, b, d] or [t, d] each, to [b, t, d] by a linear layer each."""
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [
        linear(x.transpose(0, 1) if x.ndim == 3 else x.unsqueeze(0), weight, part)
        for x, weight, part in zip(operands, weights, biases, strict=True)
        if weight is not None
    ]


def attend(
    projected: list[Tensor],
    num_heads: int,
    *,
    bias: tuple[Tensor, Tensor] | None = None,
    static: tuple[Tensor | None, Tensor | None] = (None, None),
    add_zero_attn: bool = False,
    masks: tuple[Tensor | None, Tensor | None] = (None, None),
    dropout_p: float = 0.0,
    need_weights: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Attention of projected queries, keys and values [b, t, d]: the result [b, t, d] and the
    weights.

    Weights that are not needed are not computed.

    Args:
        projected: Queries, keys and values.
        num_heads: Number of heads.
        bias: [1, 1, d] each, an extra key and value.
        static: [b * h, s, k] each, in place of the keys and values.
        add_zero_attn: Whether to add a key and value of zeros.
        masks: attn_mask and key_padding_mask.
        dropout_p: Probability of dropping a weight.
        need_weights: False returns None in place of the weights.
    """
    query, *sources = projected
    batch, width = query.shape[0], query.shape[-1] // num_heads
    added = (bias is not None) + add_zero_attn
    if bias is not None:
        sources = [
            gt.cat([x, more.expand(batch, 1, -1)], 1) for x, more in zip(sources, bias, strict=True)
        ]
    q, k, v = (split_heads(x, num_heads) for x in (query, *sources))
    k, v = (
        x if constant is None else constant.unflatten(0, (batch, num_heads))
        for x, constant in zip((k, v), static, strict=True)
    )
    if add_zero_attn:
        zeros = gt.zeros(batch, num_heads, 1, width, dtype=k.dtype)
        k, v = gt.cat([k, zeros], 2), gt.cat([v, zeros], 2)
    mask = _joined_mask(masks, q, added)
    scale = 1.0 / math.sqrt(width)
    if not need_weights:
        output = fused(q, k, v, mask, dropout_p=dropout_p, scale=scale)
        if output is not None:
            return output.transpose(1, 2).flatten(2), None  # [b, h, t, k] -> [b, t, h * k]
    weights = (_weights if need_weights else attention_weights)(q, k, mask, scale=scale)
    if mask is not None and mask.dtype != v.dtype and _core.autocast_region() is None:
        weights = weights.to(v.dtype)
    weights = dropout(weights, dropout_p)
    return (weights @ v).transpose(1, 2).flatten(2), weights  # [b, h, t, k] -> [b, t, h * k]


def _weights(query: Tensor, key: Tensor, mask: Tensor | None, *, scale: float) -> Tensor:
    """The weights to return: NaN in fully masked rows, as in PyTorch."""
    scores = (query * scale) @ key.transpose(-2, -1)  # [..., t, k] @ [..., k, s] -> [..., t, s]
    return (scores if mask is None else scores + mask).softmax(-1)


def split_heads(projected: Tensor, num_heads: int) -> Tensor:
    """[b, t, h * k] -> [b, h, t, k]."""
    return projected.unflatten(-1, (num_heads, projected.shape[-1] // num_heads)).transpose(1, 2)


def _joined_mask(
    masks: tuple[Tensor | None, Tensor | None], query: Tensor, added: int
) -> Tensor | None:
    """Both masks as one that is added to the scores [b, h, t, s]; the last `added` keys are not
    masked.
    """
    attn_mask, padding = (None if mask is None else _additive(mask, query) for mask in masks)
    total = attn_mask
    if total is not None and total.ndim == 3:  # [b * h, t, s] -> [b, h, t, s]
        total = total.unflatten(0, (-1, query.shape[1]))
    if padding is not None:
        row = padding.reshape(-1, 1, 1, padding.shape[-1])  # [b, s] -> [b, 1, 1, s]
        total = row if total is None else total + row
    return total if total is None or not added else pad(total, (0, added))


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != gt.bool:
        return mask.to(like.dtype) if _core.autocast_region() is not None else mask
    return gt.zeros(*mask.shape, dtype=like.dtype).masked_fill(mask, -math.inf)
