"""MultiheadAttention."""

from __future__ import annotations

import gt
from gt import signal
from gt._core import Tensor
from gt.compat import misses
from gt.nn import functional, init
from gt.nn.attention_choice import SDPBackend, sdpa_kernel
from gt.nn.functional.attention_checks import check_heads
from gt.nn.functional.multihead import attend
from gt.nn.linear import NonDynamicallyQuantizableLinear
from gt.nn.module import Module
from gt.nn.parameter import Parameter

__all__ = ["MultiheadAttention", "SDPBackend", "sdpa_kernel"]


class MultiheadAttention(Module):
    """Attention with several heads, between linear layers.

    Args:
        embed_dim: Width of query and output; a multiple of num_heads.
        num_heads: Number of heads.
        dropout: Probability of dropping an attention weight, in training.
        bias: Whether the linear layers have one.
        add_bias_kv: Whether there is one more key and value, both trained.
        add_zero_attn: Whether there is one more key and value of zeros.
        kdim: Width of the keys; embed_dim if not given.
        vdim: Width of the values; embed_dim if not given.
        batch_first: Tensors are [b, t, d] instead of [t, b, d].
        device: Accepted and ignored.
        dtype: Dtype of the parameters.
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None
    _orientation = "[out, in]"

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, "
                f"got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        widths = {"q": embed_dim, "k": kdim or embed_dim, "v": vdim or embed_dim}
        shapes: dict[str, tuple[int, ...] | None] = {
            f"{name}_proj_weight": (embed_dim, width) for name, width in widths.items()
        }
        shapes["in_proj_weight"] = None
        if set(widths.values()) == {embed_dim}:  # one matrix for query, key and value
            shapes = {**dict.fromkeys(shapes), "in_proj_weight": (3 * embed_dim, embed_dim)}
        shapes["in_proj_bias"] = (3 * embed_dim,) if bias else None
        for name, shape in shapes.items():
            value = None
            if shape is not None:
                with signal.part("bias" if name == "in_proj_bias" else "transposed"):
                    value = Parameter(gt.empty(*shape, device=device, dtype=dtype))
            self.register_parameter(name, value)
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        for name in ("bias_k", "bias_v"):
            added = None
            if add_bias_kv:
                with signal.part("whole"):
                    added = Parameter(gt.empty(1, 1, embed_dim, dtype=dtype))
            self.register_parameter(name, added)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = self._parameters[name]
            if weight is not None:
                with signal.part("transposed"):
                    init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                with signal.part("bias"):
                    init.zeros_(bias)
        for added in (self.bias_k, self.bias_v):
            if added is not None:
                with signal.part("whole"):
                    init.xavier_normal_(added)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attended values, and the weights if they are wanted.

        Args:
            query: [t, b, d], [b, t, d] (batch_first) or [t, d].
            key: [s, b, …] likewise.
            value: [s, b, …] likewise.
            key_padding_mask: [b, s]: bool (True is left out) or added to the scores.
            need_weights: Whether the second result is the weights and not None.
            attn_mask: [t, s] or [b * heads, t, s]: bool (True is left out) or added to the scores.
            average_attn_weights: Weights are [b, t, s] instead of [b, heads, t, s].
            is_causal: A hint that attn_mask is causal; attn_mask is needed with it.
        """
        batched = query.ndim == 3
        operands = [query, key, value]
        masks = (attn_mask, key_padding_mask)
        check_heads(
            operands,
            masks,
            self.embed_dim,
            self.num_heads,
            is_causal=is_causal,
            is_separate=self.in_proj_weight is None,
            batch_first=self.batch_first,
        )
        if not batched:
            operands = [operand.unsqueeze(0) for operand in operands]
        elif not self.batch_first:
            operands = [operand.transpose(0, 1) for operand in operands]
        joined, weights = attend(
            self._project(operands, same=query is key is value),
            self.num_heads,
            bias=None if self.bias_k is None or self.bias_v is None else (self.bias_k, self.bias_v),
            add_zero_attn=self.add_zero_attn,
            masks=masks,
            dropout_p=self.dropout if self.training else 0.0,
            need_weights=need_weights,
        )
        output = self.out_proj(joined)
        if not batched:
            output = output.squeeze(0)
        elif not self.batch_first:
            output = output.transpose(0, 1)
        if weights is None or not need_weights:
            return output, None
        shown = weights.mean(dim=1) if average_attn_weights else weights
        return output, shown if batched else shown.squeeze(0)

    def _project(self, operands: list[Tensor], *, same: bool) -> list[Tensor]:
        if self.in_proj_weight is not None and same:
            joined = functional.linear(operands[0], self.in_proj_weight, self.in_proj_bias)
            return list(joined.chunk(3, -1))  # [b, t, 3d] -> three of [b, t, d]
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
            weights = tuple(getattr(self, name) for name in names)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [
            functional.linear(operand, weight, bias)
            for operand, weight, bias in zip(operands, weights, biases, strict=True)
        ]


__getattr__ = misses.hook(__name__)
