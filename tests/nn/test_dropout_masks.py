"""Attention and recurrent layers draw the masks of `F.dropout`, one after another.

So their dropout can be compared with PyTorch's composition, as test_public_programs.py does.
"""

import numpy as np
import pytest

import gt
from gt.nn import functional as F

RATE = 0.3


def drawn(*shape):
    return gt.tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32))


def close(seen, expected):
    np.testing.assert_allclose(
        seen.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("mask", ["none", "float", "bool", "causal"])
def test_attention(mask):
    query, key, value = (drawn(2, 4, 6, 8) + place for place in range(3))
    masks = {
        "none": None,
        "float": gt.full((6, 6), -5.0).triu(1),
        "bool": gt.ones(6, 6, dtype=gt.bool).tril(),
        "causal": None,
    }
    gt.manual_seed(0)
    seen = F.scaled_dot_product_attention(
        query, key, value, masks[mask], RATE, is_causal=mask == "causal"
    )
    gt.manual_seed(0)
    scores = query @ key.transpose(-1, -2) / 8**0.5  # [b, h, t, t]
    if mask == "float":
        scores = scores + masks[mask]
    elif mask != "none":
        scores = scores.masked_fill(gt.ones(6, 6, dtype=gt.bool).triu(1), -float("inf"))
    close(seen, F.dropout(scores.softmax(-1), RATE) @ value)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(kind):
    layer = getattr(gt.nn, kind)(5, 5, num_layers=3, dropout=RATE)
    single = [getattr(gt.nn, kind)(5, 5) for _ in range(3)]
    for place, one in enumerate(single):
        for name, parameter in one.named_parameters():
            parameter.data.copy_(getattr(layer, name.replace("l0", f"l{place}")).data)
    inputs = drawn(7, 2, 5)  # [t, b, d]
    gt.manual_seed(0)
    seen, _ = layer(inputs)
    gt.manual_seed(0)
    for place, one in enumerate(single):
        inputs, _ = one(F.dropout(inputs, RATE) if place else inputs)
    close(seen, inputs)
    before = gt.random.get_rng_state().tolist()
    layer.eval()(drawn(7, 2, 5))
    assert gt.random.get_rng_state().tolist() == before, "an evaluation draws nothing"
