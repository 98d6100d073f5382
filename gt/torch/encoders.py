"""Layers of transformers as PyTorch's modules call them where nothing is recorded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from gt import _core
from gt._core import Tensor
from gt.nn import functional as F
from gt.nn.functional.attention import attention_weights

# Of `mask_type`: [t, s], [b, s] and [b, h, t, s]; true hides, and so does a number other than 0.
_OF_KEYS = 1


def _native_multi_head_attention(
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
) -> tuple[Tensor | None, ...]:
    """The attended values [b, t, d], and the weights [b, t, s] or [b, h, t, s] where wanted."""
    del embed_dim
    projected = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (
        F.linear(x, weight, bias).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for x, weight, bias in projected
    )  # [b, h, t, k]
    seen = None if mask is None else _seen(mask, mask_type)
    weights = None
    if need_weights:
        weights = attention_weights(q, k, seen, scale=1.0 / math.sqrt(q.shape[-1]))
        output = weights @ v
    else:
        output = F.scaled_dot_product_attention(q, k, v, seen)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    return F.linear(output.transpose(1, 2).flatten(2), proj_weight, proj_bias), weights


def _seen(mask: Tensor, mask_type: int | None) -> Tensor:
    """What takes part, in a form that broadcasts to [b, h, t, s]."""
    seen = ~mask if mask.dtype == _core.bool else mask == 0
    return seen[:, None, None, :] if mask_type == _OF_KEYS else seen


def _transformer_encoder_layer_fwd(
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
    *rest: Any,  # noqa: ANN401 - weights and biases of norms and net, two of each; mask, its type
) -> Tensor:
    """A layer of an encoder [b, t, d]: attention and a net, each with a residual and a norm."""
    norms, net = (rest[:2], rest[2:4]), rest[4:8]

    def attended(x: Tensor) -> Tensor:
        output, _ = _native_multi_head_attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias,
            rest[8] if rest[8:] else None, need_weights=False,
            mask_type=rest[9] if rest[9:] else None,
        )  # fmt: skip
        assert output is not None, "only weights are left out"
        return output

    def widened(x: Tensor) -> Tensor:
        hidden = F.linear(x, *net[:2])
        return F.linear(F.gelu(hidden) if use_gelu else hidden.relu(), *net[2:])

    for block, (weight, bias) in zip((attended, widened), norms, strict=True):
        if norm_first:
            src = src + block(F.layer_norm(src, (embed_dim,), weight, bias, eps))
        else:
            src = F.layer_norm(src + block(src), (embed_dim,), weight, bias, eps)
    return src


def _nested_tensor_from_mask_left_aligned(t: Tensor, mask: Tensor) -> bool:
    """False: there are no nested tensors, and an encoder works on padded ones."""
    del t, mask
    return False


FUNCTIONS: dict[str, Callable[..., object]] = {
    "_native_multi_head_attention": _native_multi_head_attention,
    "_transformer_encoder_layer_fwd": _transformer_encoder_layer_fwd,
    "_nested_tensor_from_mask_left_aligned": _nested_tensor_from_mask_left_aligned,
}
