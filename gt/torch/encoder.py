"""Attention and encoder layers that PyTorch runs as one operator when no gradient is needed."""

from __future__ import annotations

import math
from collections.abc import Callable

from gt._core import Tensor
from gt.nn import functional as F
from gt.torch.checks import OF_PADDING, masked_softmax


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Attention's output [b, s, d] and its weights, [b, s, t] or [b, h, s, t]."""
    del embed_dim  # it follows from the weights
    parts = zip((query, key, value), qkv_weight.chunk(3, 0), qkv_bias.chunk(3, 0), strict=True)
    q, k, v = [
        F.linear(x, weight, bias).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for x, weight, bias in parts
    ]  # [b, s, d] -> [b, h, s, k]
    mask = None if mask is None else mask.bool()
    weights = None
    if need_weights:
        scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)  # [b, h, s, t]
        if mask is None:
            weights = scores.softmax(-1)
        else:
            weights = masked_softmax(scores, mask, -1, mask_type)
        mixed = weights @ v
    else:
        if mask is not None and mask_type == OF_PADDING:
            mask = mask[:, None, None, :]  # [b, t] -> [b, 1, 1, t]
        mixed = F.scaled_dot_product_attention(q, k, v, None if mask is None else ~mask)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    return F.linear(mixed.transpose(1, 2).flatten(2), proj_weight, proj_bias), weights


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """`nn.TransformerEncoderLayer` without dropout: [b, s, d] -> [b, s, d]."""
    weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    activation = F.gelu if use_gelu else F.relu

    def attended(x: Tensor) -> Tensor:
        return attention(
            x, x, x, embed_dim, num_heads, *weights, mask, need_weights=False, mask_type=mask_type
        )[0]

    def fed_forward(x: Tensor) -> Tensor:
        return F.linear(activation(F.linear(x, ffn_weight_1, ffn_bias_1)), ffn_weight_2, ffn_bias_2)

    def norm_1(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attended(norm_1(src))
        return x + fed_forward(norm_2(x))
    x = norm_1(src + attended(src))
    return norm_2(x + fed_forward(x))


FUNCTIONS: dict[str, Callable[..., object]] = {
    "_native_multi_head_attention": attention,
    "_transformer_encoder_layer_fwd": encoder_layer,
}
