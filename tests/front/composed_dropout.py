"""PyTorch's functions with dropout, composed of `native_dropout` as on a device of GT's.

On the host PyTorch draws other masks, within attention and between recurrent layers.
"""

import math

import torch
from torch import _VF
from torch.nn import functional

RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
product = functional.scaled_dot_product_attention


def dropout(input, p=0.5, training=True, inplace=False):
    kept = torch.ops.aten.native_dropout(input, p, training)[0] if training and p else input
    return input.copy_(kept) if inplace else kept


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **options):
    if not dropout_p:
        return product(query, key, value, attn_mask, dropout_p, is_causal, **options)
    assert not options.keys() - {"scale"}, options
    scale = options.get("scale") or query.shape[-1] ** -0.5
    scores = query @ key.transpose(-1, -2) * scale  # [b, h, t, t]
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None:
        is_kept = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if is_kept else scores + attn_mask
    return dropout(scores.softmax(-1), dropout_p) @ value


def recurrent(layer):
    """A recurrent function over a batch, layer by layer, with dropout in between."""

    def run(input, state, weights, bias, layers, rate, train, *directions):
        if not (train and rate):
            return layer(input, state, weights, bias, layers, rate, train, *directions)
        states = state if isinstance(state, (tuple, list)) else [state]
        of_layer = len(weights) // layers
        ends = []
        for place in range(layers):
            first = place * (states[0].shape[0] // layers)
            last = first + states[0].shape[0] // layers
            own = [x[first:last] for x in states]
            input, *end = layer(
                dropout(input, rate) if place else input,
                own if len(own) > 1 else own[0],
                weights[place * of_layer : (place + 1) * of_layer],
                bias, 1, 0.0, train, *directions,
            )  # fmt: skip
            ends.append(end)
        return (input, *(torch.cat(parts) for parts in zip(*ends, strict=True)))

    return run


# Builtin functions, by a mode; those of Python call the others where no mode looks.
BUILTIN = {torch.dropout: dropout} | {
    getattr(_VF, name): recurrent(getattr(_VF, name)) for name in RECURRENT
}


def patch():
    functional.scaled_dot_product_attention, functional.dropout = attention, dropout
