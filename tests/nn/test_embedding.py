"""Embeddings that shorten their rows, beside PyTorch."""

import math

import numpy as np
import pytest
import torch

import gt

ROWS = np.arange(15, dtype=np.float32).reshape(5, 3)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_only_the_rows_that_are_used_are_shortened(name, norm_type):
    weights = []
    for library in (torch, gt):
        layer = getattr(library.nn, name)(5, 3, max_norm=2.0, norm_type=norm_type)
        layer.load_state_dict({"weight": library.tensor(ROWS)})
        layer(library.tensor([[1, 1], [3, 2]])).sum().backward()
        weights.append([np.array(x.tolist()) for x in (layer.weight, layer.weight.grad)])
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-5)


def test_an_index_outside_leaves_the_weight_that_would_be_shortened_readable():
    layer = gt.nn.Embedding(5, 3, max_norm=2.0)
    with pytest.raises(IndexError, match="index out of range"):
        layer(gt.tensor([7])).tolist()
    assert len(layer.weight.tolist()) == 5


def test_rows_that_are_given():
    for library in (torch, gt):
        rows = library.tensor(ROWS)
        layer = library.nn.Embedding(5, 3, _weight=rows, _freeze=True)
        assert layer.weight.tolist() == ROWS.tolist()
        assert not layer.weight.requires_grad
        with pytest.raises(AssertionError, match="Shape of weight does not match num_embeddings"):
            library.nn.Embedding(5, 4, _weight=rows)
