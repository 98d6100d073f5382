"""The decoder half of the transformer, and the whole transformer."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import gt
from gt._core import Tensor
from gt.nn import functional, init
from gt.nn.attention import MultiheadAttention
from gt.nn.containers import ModuleList
from gt.nn.linear import Linear
from gt.nn.module import Module
from gt.nn.normalization import Dropout, LayerNorm
from gt.nn.transformer import TransformerEncoder, TransformerEncoderLayer, activation_named


class TransformerDecoderLayer(Module):
    """Self-attention, attention to a memory and a feed-forward net, each with a residual and a
    norm.

    Args:
        d_model: Width.
        nhead: Number of heads.
        dim_feedforward: Width of the net's inner layer.
        dropout: Probability of dropping an element, in training.
        activation: "relu", "gelu" or a function.
        layer_norm_eps: eps of the norms.
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
        activation: str | Callable[[Tensor], Tensor] = functional.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        self.self_attn, self.multihead_attn = (
            MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
            )
            for _ in range(2)
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm_first = norm_first
        self.norm1, self.norm2, self.norm3 = (
            LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
            for _ in range(3)
        )
        self.dropout1, self.dropout2, self.dropout3 = (Dropout(dropout) for _ in range(3))
        self.activation = activation_named(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The targets for the next layer.

        Args:
            tgt: [t, b, d], [b, t, d] (batch_first) or [t, d].
            memory: [s, b, d], [b, s, d] or [s, d], the encoder's result.
            tgt_mask: [t, t] or [b * heads, t, t]: bool (True is left out) or added to the scores.
            memory_mask: [t, s] or [b * heads, t, s], like tgt_mask.
            tgt_key_padding_mask: [b, t]: bool (True is left out) or added to the scores.
            memory_key_padding_mask: [b, s], like tgt_key_padding_mask.
            tgt_is_causal: A hint that tgt_mask is causal.
            memory_is_causal: A hint that memory_mask is causal.
        """
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = self.norm1(tgt)
            tgt = tgt + self.dropout1(_attended(self.self_attn, x, x, own))
            attended = _attended(self.multihead_attn, self.norm2(tgt), memory, other)
            tgt = tgt + self.dropout2(attended)
            return tgt + self._feed_forward(self.norm3(tgt))
        tgt = self.norm1(tgt + self.dropout1(_attended(self.self_attn, tgt, tgt, own)))
        attended = _attended(self.multihead_attn, tgt, memory, other)
        tgt = self.norm2(tgt + self.dropout2(attended))
        fed: Tensor = self.norm3(tgt + self._feed_forward(tgt))
        return fed

    def _feed_forward(self, x: Tensor) -> Tensor:
        inner = self.dropout(self.activation(self.linear1(x)))
        dropped: Tensor = self.dropout3(self.linear2(inner))
        return dropped


def _attended(
    attention: Module,
    x: Tensor,
    source: Tensor,
    masks: tuple[Tensor | None, Tensor | None, bool],
) -> Tensor:
    mask, padding, is_causal = masks
    attended: Tensor
    attended, _ = attention(
        x,
        source,
        source,
        attn_mask=mask,
        key_padding_mask=padding,
        need_weights=False,
        is_causal=is_causal,
    )
    return attended


class TransformerDecoder(Module):
    """Copies of one layer, one after the other.

    Args:
        decoder_layer: The layer to copy.
        num_layers: Number of copies.
        norm: A norm at the end, if given.
    """

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The targets after all layers; arguments as in TransformerDecoderLayer."""
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder, and a decoder that attends to the encoder's result.

    Args:
        d_model: Width.
        nhead: Number of heads.
        num_encoder_layers: Number of layers in the encoder.
        num_decoder_layers: Number of layers in the decoder.
        dim_feedforward: Width of the layers' inner nets.
        dropout: Probability of dropping an element, in training.
        activation: "relu", "gelu" or a function.
        custom_encoder: Module in place of the encoder.
        custom_decoder: Module in place of the decoder.
        layer_norm_eps: eps of the norms.
        batch_first: Tensors are [b, t, d] instead of [t, b, d].
        norm_first: Whether norms come before attention and net instead of after the residual.
        bias: Whether linear layers and norms have one.
        device: Accepted and ignored.
        dtype: Dtype of the parameters.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = functional.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
        options = (batch_first, norm_first, bias, device, dtype)
        norms = [
            LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
            for _ in range(2)
        ]
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*layer, *options), num_encoder_layers, norms[0]
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*layer, *options), num_decoder_layers, norms[1]
        )
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        for param in self.parameters():
            if param.ndim > 1:
                init.xavier_uniform_(param)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The decoder's result for the targets.

        Args:
            src: [s, b, d], [b, s, d] (batch_first) or [s, d].
            tgt: [t, b, d] likewise.
            src_mask: [s, s]: bool (True is left out) or added to the scores.
            tgt_mask: [t, t] likewise.
            memory_mask: [t, s] likewise.
            src_key_padding_mask: [b, s] likewise.
            tgt_key_padding_mask: [b, t] likewise.
            memory_key_padding_mask: [b, s] likewise.
            src_is_causal: A hint that src_mask is causal.
            tgt_is_causal: A hint that tgt_mask is causal.
            memory_is_causal: A hint that memory_mask is causal.

        Raises:
            RuntimeError: Different batch sizes or widths.
        """
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(
            src,
            mask=src_mask,
            src_key_padding_mask=src_key_padding_mask,
            is_causal=src_is_causal,
        )
        decoded: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return decoded

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: object = None, dtype: gt.dtype | None = None
    ) -> Tensor:
        """[sz, sz]: 0 for sources up to the target's position, minus infinity for later ones."""
        return gt.full((sz, sz), -math.inf, dtype=dtype, device=device).triu(1)
