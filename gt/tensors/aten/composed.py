"""Operators of torch.ops.aten that GT composes of others: their schemas write an operand, or a
worker must not run them on any user's operands (indices that no kernel checks).
"""

from __future__ import annotations

import math

from gt import _core
from gt._core import Tensor
from gt.errors import NotSupported
from gt.tensors.aten.call import call

Sizes = int | list[int] | tuple[int, ...]


def max_pool2d_with_indices_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """The gradient of max_pool2d: each window's gradient goes to the place of its maximum."""
    del kernel_size, stride, padding, dilation, ceil_mode  # the places are given
    everywhere = _core.call("full_like", self.detach(), size=(), value=True, dtype=_core.bool)
    zeros = self.masked_fill(everywhere, 0.0)  # its gradient is zero, as PyTorch's
    flat = zeros.flatten(-2)
    return flat.scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2)).view_as(self)


def _native_batch_norm_legit(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *rest: Tensor | bool | float,
) -> tuple[Tensor, ...]:
    """native_batch_norm; without running statistics if `rest` begins with `training`."""
    from gt.nn.functional.batch import native_batch_norm

    running = rest[:-3] or (None, None)
    return native_batch_norm(input, weight, bias, *running, *rest[-3:])


def _batch_norm_with_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """native_batch_norm in training, and an empty tensor for the memory that some kernels keep."""
    from gt.nn.functional.batch import native_batch_norm

    results = native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*results, _core.call("full", size=(0,), value=0, dtype=_core.uint8))


def _scaled_dot_product_flash_attention_for_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention [b, h, t, k], and the logarithm of each row's sum of exp(scores) [b, h, t]."""
    if dropout_p:
        raise NotSupported(
            "scaled_dot_product_attention_flash_attention: Currently do not support dropout > 0"
        )
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    operands = (query, key, value, attn_mask, None, is_causal, 0.0, float(factor))
    output, sums = call("attention", operands, {})
    wide = sums.float() if sums.dtype in {_core.float16, _core.bfloat16} else sums
    sums = wide.detach()
    if output.requires_grad and _core.is_grad_enabled():
        _core.keep(output, sums)
    return output, sums


OPERATORS = {
    function.__name__: function
    for function in (
        max_pool2d_with_indices_backward,
        _native_batch_norm_legit,
        _batch_norm_with_update,
        _scaled_dot_product_flash_attention_for_cpu,
    )
}
