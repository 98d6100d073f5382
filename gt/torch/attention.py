"""Attention as one instruction in each pass, behind PyTorch's `scaled_dot_product_attention`.

For devices with an attention of their own, PyTorch records one operator, which saves the gradient's
operands. If the instruction does not fit (`gt.nn.functional.attention`), or for derivatives that
PyTorch has only for the composition, the operator is composed as elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from gt._core import Tensor
from gt.errors import NotSupported
from gt.nn.functional import attention as ours
from gt.tensors.aten import schemas
from gt.tensors.aten.backward import saved_results
from gt.tensors.aten.call import call
from gt.torch import gradients
from gt.torch.elements import DEVICE_TYPE
from gt.torch.tensor import MuxTensor

_COMPOSED: Any = torch.ops.aten.scaled_dot_product_attention.default
_FORWARD: Any = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default  # noqa: SLF001
# Limit of gradient instructions that are kept; the oldest is dropped.
_KEPT_MAX = 256
_kept: dict[Hashable, Callable[..., Any]] = {}


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """The operator above autograd."""
    k, v = key, value
    if enable_gqa and query.dim() == key.dim() == value.dim() == 4:
        k, v = (_for_heads(x, query) for x in (key, value))
    if _is_one(query, k, v, attn_mask, dropout_p, is_causal):
        try:
            q, k, v = (x if x.dim() == 4 else x.unsqueeze(0) for x in (query, k, v))
            output: torch.Tensor = _FORWARD(q, k, v, attn_mask, dropout_p, is_causal, scale=scale)[
                0
            ]
        except NotSupported:  # raised by workers without PyTorch
            pass
        else:
            return output if query.dim() == 4 else output.squeeze(0)
    composed: torch.Tensor = _COMPOSED.decompose(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return composed


def composed_gradients(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    grad_input_mask: Sequence[bool],
    *rest: Any,  # noqa: ANN401 - what the forward operator returned, and its options
    scale: float | None = None,
) -> tuple[torch.Tensor | None, ...]:
    """The gradients of `_fused_backward`, by operators that PyTorch's autograd records.

    Raises:
        NotImplementedError: weights were dropped, and the composition would drop others.
    """
    dropout_p, is_causal = rest[-4:-2]
    if dropout_p:
        raise NotImplementedError(
            "the derivative of the gradient of scaled_dot_product_attention with dropout is not "
            f"implemented for the device {DEVICE_TYPE}"
        )
    q, k, v = (x.view_as(x) for x in (query, key, value))  # one tensor may be all three
    output, _ = torch.ops.aten._scaled_dot_product_attention_math(  # noqa: SLF001
        q, k, v, attn_bias, 0.0, is_causal, scale=scale
    )
    wanted = [x for x, is_wanted in zip((q, k, v), grad_input_mask, strict=False) if is_wanted]
    results = iter(torch.autograd.grad(output, wanted, grad_out, create_graph=True))
    return *[next(results) if is_wanted else None for is_wanted in grad_input_mask[:3]], None


def _for_heads(x: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Keys or values repeated for each head of the queries; unchanged if they do not fit."""
    heads, groups = query.shape[1], x.shape[1]
    is_even = groups and groups != heads and heads % groups == 0
    return x.repeat_interleave(heads // groups, 1) if is_even else x


def _is_one(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
) -> bool:
    if (mask is not None and is_causal) or forward_ad._current_level >= 0:  # noqa: SLF001
        return False  # refused; forward mode knows only the composition
    tensors = (query, key, value) if mask is None else (query, key, value, mask)
    if not all(type(x) is MuxTensor for x in tensors) or not 0.0 <= dropout_p <= 1.0:
        return False  # a transform follows only the composition
    if query.dim() == key.dim() == value.dim() == 3 and (mask is None or mask.dim() == 2):
        query, key, value = (x.unsqueeze(0) for x in (query, key, value))  # [1, h, t, k]
    return ours.is_one_instruction(query, key, value, mask, dropout_p, boolean=torch.bool)


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | int | None, ...]:
    """The output, then the sums and the dropout's seeds in the places of PyTorch's
    saved results.
    """
    del return_debug_mask  # only some kernels have one
    seeds = ours.seeds_of(query) if dropout_p else None
    output, sums = call(
        "attention",
        (query, key, value, *_options(query, attn_bias, seeds, is_causal, dropout_p, scale)),
        {},
    )
    return output, sums, None, None, 0, 0, seeds, None, None


def _options(
    query: Tensor,
    mask: Tensor | None,
    seeds: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float | None,
) -> tuple[object, ...]:
    """The instruction's arguments behind query, key and value."""
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    return ours.added(mask, query), seeds, is_causal, float(dropout_p), float(factor)


def _fused_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    grad_input_mask: Sequence[bool],
    out: Tensor,
    logsumexp: Tensor,
    *rest: Any,  # noqa: ANN401 - what else the forward operator returned, and its options
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """The gradients of query, key and value; a mask that needs one never reaches this."""
    _, _, _, _, dropout_p, is_causal, seeds, _ = rest
    options = _options(query, attn_bias, seeds, is_causal, dropout_p, scale)
    bound = gradients.distinct((query, key, value, *options))
    tensors = [x for x in bound if isinstance(x, Tensor)]
    wanted = [x for x, is_asked in zip(tensors, grad_input_mask[:3], strict=False) if is_asked]
    description = [(x.dtype, x.shape) for x in tensors]
    place: Hashable = (*description, options[2:], tuple(grad_input_mask))
    instruction = _kept.get(place)
    if instruction is None:
        (schema,) = schemas.of("attention")
        stated = gradients.described(out, logsumexp)
        saved = saved_results("attention")
        instruction, _ = gradients.prepared(schema, bound, wanted, stated, saved)
        while len(_kept) >= _KEPT_MAX:
            del _kept[next(iter(_kept))]
        _kept[place] = instruction
    results = instruction(*tensors, grad_out, None, out, logsumexp)
    each = iter([results] if isinstance(results, Tensor) else results)
    return *[next(each) if is_wanted else None for is_wanted in grad_input_mask[:3]], None


FUNCTIONS: dict[str, Callable[..., object]] = {
    "_scaled_dot_product_fused_attention_overrideable": _fused,
    "_scaled_dot_product_fused_attention_overrideable_backward": _fused_backward,
}
