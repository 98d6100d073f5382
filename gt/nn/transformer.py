"""The encoder half of the transformer."""

from __future__ import annotations

import copy
from collections.abc import Callable

import gt
from gt._core import Tensor
from gt.nn import functional
from gt.nn.attention import MultiheadAttention
from gt.nn.containers import ModuleList
from gt.nn.linear import Linear
from gt.nn.module import Module
from gt.nn.normalization import Dropout, LayerNorm


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward net, each with a residual and a LayerNorm.

    Args:
        d_model: Width.
        nhead: Number of heads.
        dim_feedforward: Width of the net's inner layer.
        dropout: Probability of dropping an element, in training.
        activation: "relu", "gelu" or a function.
        layer_norm_eps: eps of both norms.
        batch_first: Tensors are [b, t, d] instead of [t, b, d].
        norm_first: Whether norms come before attention and net instead of after the residual.
        bias: Whether linear layers and norms have one.
        device: Accepted and ignored.
        dtype: Dtype of the parameters.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = activation_named(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        if self.norm_first:
            src = src + self._attend(
                self.norm1(src), src_mask, src_key_padding_mask, is_causal=is_causal
            )
            return src + self._feed_forward(self.norm2(src))
        attended = self._attend(src, src_mask, src_key_padding_mask, is_causal=is_causal)
        src = self.norm1(src + attended)
        fed: Tensor = self.norm2(src + self._feed_forward(src))
        return fed

    def _attend(
        self, x: Tensor, mask: Tensor | None, padding: Tensor | None, *, is_causal: bool
    ) -> Tensor:
        attended, _ = self.self_attn(
            x,
            x,
            x,
            attn_mask=mask,
            key_padding_mask=padding,
            need_weights=False,
            is_causal=is_causal,
        )
        dropped: Tensor = self.dropout1(attended)
        return dropped

    def _feed_forward(self, x: Tensor) -> Tensor:
        inner = self.dropout(self.activation(self.linear1(x)))
        dropped: Tensor = self.dropout2(self.linear2(inner))
        return dropped


class TransformerEncoder(Module):
    """Copies of one layer, one after the other.

    Args:
        encoder_layer: The layer to copy.
        num_layers: Number of copies.
        norm: A norm at the end, if given.
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        del enable_nested_tensor, mask_check  # they affect only speed, in PyTorch
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        causal = bool(is_causal)
        for layer in self.layers:
            src = layer(
                src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=causal
            )
        if self.norm is not None:
            src = self.norm(src)
        return src


def activation_named(
    activation: str | Callable[[Tensor], Tensor],
) -> Callable[[Tensor], Tensor]:
    """relu or gelu by name; a function unchanged."""
    if not isinstance(activation, str):
        return activation
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": functional.relu,
        "gelu": functional.gelu,
    }
    if activation not in functions:
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return functions[activation]
