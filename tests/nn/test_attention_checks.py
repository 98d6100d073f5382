"""Operands that attention refuses, and masks of other dtypes that it takes, beside PyTorch."""

import numpy as np
import pytest
import torch

import gt

LIBRARIES = (torch, gt)


def heads(m, **options):
    layer = m.nn.MultiheadAttention(8, 2, **options)
    for place, param in enumerate(layer.parameters()):
        values = np.random.default_rng(place).normal(size=tuple(param.shape))
        param.data = m.tensor(values, dtype=m.float32)
    return layer


def attend(m, query=(3, 2, 8), key=(4, 2, 8), value=None, masks=(None, None), **options):
    value = key if value is None else value
    attn_mask, padding = masks
    call = {name: options.pop(name) for name in ("is_causal",) if name in options}
    return heads(m, **options)(
        m.ones(query), m.ones(key), m.ones(value), padding, attn_mask=attn_mask, **call
    )


REFUSED = {
    "a query of another width": lambda m: attend(m, (3, 2, 7)),
    "keys of another width": lambda m: attend(m, key=(4, 2, 7)),
    "keys and values of other lengths": lambda m: attend(m, value=(5, 2, 8)),
    "keys of another batch": lambda m: attend(m, key=(4, 3, 8)),
    "keys of one batch": lambda m: attend(m, key=(4, 1, 8)),
    "keys of another batch, batch first": lambda m: attend(m, batch_first=True),
    "one sequence, keys of several": lambda m: attend(m, (3, 8)),
    "several sequences, keys of one": lambda m: attend(m, key=(4, 8)),
    "four dimensions": lambda m: attend(m, (1, 3, 2, 8)),
    "widths of their own, other lengths": lambda m: attend(
        m, key=(4, 2, 6), value=(3, 2, 5), kdim=6, vdim=5
    ),
    "a mask of whole numbers": lambda m: attend(m, masks=(m.ones(3, 4).long(), None)),
    "a mask of bytes": lambda m: attend(m, masks=(m.ones(3, 4).byte(), None)),
    "a padding mask of whole numbers": lambda m: attend(m, masks=(None, m.ones(2, 4).int())),
    "a mask that would broadcast": lambda m: attend(m, masks=(m.ones(3, 1), None)),
    "a transposed mask": lambda m: attend(m, masks=(m.ones(4, 3).bool(), None)),
    "a mask of too few heads": lambda m: attend(m, masks=(m.ones(2, 3, 4), None)),
    "a vector for a mask": lambda m: attend(m, masks=(m.ones(4), None)),
    "a transposed padding mask": lambda m: attend(m, masks=(None, m.ones(4, 2).bool())),
    "a padding mask of one batch": lambda m: attend(m, masks=(None, m.ones(1, 4).bool())),
    "a padding mask of one sequence": lambda m: attend(m, masks=(None, m.ones(4).bool())),
    "a hint without its mask": lambda m: attend(m, is_causal=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_heads_refuse(name):
    texts = []
    for m in LIBRARIES:
        with pytest.raises((AssertionError, RuntimeError)) as caught:
            REFUSED[name](m)
        kind = AssertionError if isinstance(caught.value, AssertionError) else RuntimeError
        texts.append((kind, str(caught.value).replace("gt.", "torch.")))
    (theirs, text), (ours, ours_text) = texts
    assert ours is theirs
    assert ours_text.startswith(text)


@pytest.mark.parametrize("mask", ["int64", "int32", "int16", "int8", "uint8", "float64", "float16"])
def test_a_mask_of_a_dtype_that_is_not_added_is_refused(mask):
    texts = []
    for m in LIBRARIES:
        x = m.ones(1, 2, 3, 4)
        with pytest.raises(RuntimeError, match="Expected attn_mask dtype to be bool") as caught:
            m.nn.functional.scaled_dot_product_attention(
                x, x, x, attn_mask=m.ones(3, 3).to(getattr(m, mask))
            )
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_queries_keys_and_values_have_one_dtype():
    texts = []
    for m in LIBRARIES:
        x = m.ones(1, 2, 3, 4)
        with pytest.raises(RuntimeError, match="to have the same dtype") as caught:
            m.nn.functional.scaled_dot_product_attention(x, x.double(), x)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_a_mask_in_float32_goes_with_every_dtype(dtype):
    results = []
    for m in LIBRARIES:
        values = np.random.default_rng(0).normal(size=(3, 1, 2, 5, 4))
        q, k, v = (m.tensor(x, dtype=getattr(m, dtype)) for x in values)
        mask = m.full((5, 5), -1e9).triu(1) + m.eye(5)
        results.append(m.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    theirs, ours = results
    assert str(ours.dtype) == str(theirs.dtype).replace("torch", "gt")
    np.testing.assert_allclose(ours.double().numpy(), theirs.double().numpy(), rtol=1e-2, atol=2e-2)
