"""Recurrent layers over a sequence: values, gradients and gradients of those as PyTorch's."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import gt

KINDS = [("LSTM", {}), ("GRU", {}), ("RNN", {}), ("RNN", {"nonlinearity": "relu"})]
LAYERS = list(itertools.product(KINDS, (1, 2), (False, True), (False, True)))


def _numbers(*size: int, seed: int) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(seed)).uniform(-1, 1, size)


def _layers(kind: str, options: dict[str, Any], layers: int) -> tuple[Any, Any]:
    """PyTorch's and ours with the same parameters."""
    theirs = getattr(torch.nn, kind)(3, 4, layers, dtype=torch.float64, **options)
    ours = getattr(gt.nn, kind)(3, 4, layers, dtype=gt.float64, **options)
    for place, (name, param) in enumerate(theirs.named_parameters()):
        values = _numbers(*param.shape, seed=place)
        param.data.copy_(torch.tensor(values))
        ours.get_parameter(name).data.copy_(gt.tensor(values))
    return theirs, ours


def _gradients(
    library: ModuleType, layer: Any, *, has_output: bool, is_penalised: bool
) -> list[Any]:
    """Gradients of a loss of output and final states, or of a penalty on its gradients."""
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    values = [_numbers(5, 2, 3, seed=20), *(_numbers(count, 2, 4, seed=21 + k) for k in range(2))]
    x, h, c = (library.tensor(v, requires_grad=True) for v in values)
    is_lstm = isinstance(layer, library.nn.LSTM)
    output, last = layer(x, (h, c) if is_lstm else h)
    inputs = [x, h, *([c] if is_lstm else []), *layer.parameters()]
    parts = [(part * part).sum() for part in (last if is_lstm else [last])]
    if has_output:
        parts.append((output * library.tensor(_numbers(*output.shape, seed=30))).sum())
    loss = sum(parts[1:], parts[0])
    if is_penalised:
        first = library.autograd.grad(loss, inputs, create_graph=True)
        loss = sum((g * g).sum() for g in first)
    return [output, loss, *library.autograd.grad(loss, inputs)]


def _check(theirs: Any, ours: Any, **asked: bool) -> None:
    pairs = zip(_gradients(torch, theirs, **asked), _gradients(gt, ours, **asked), strict=True)
    for expected, got in pairs:
        np.testing.assert_allclose(
            np.asarray(got.detach()), expected.detach().numpy(), rtol=1e-9, atol=1e-11
        )


@pytest.mark.parametrize(("kind", "layers", "bias", "both"), LAYERS)
def test_values_and_gradients(
    kind: tuple[str, dict[str, str]], layers: int, bias: bool, both: bool
) -> None:
    name, options = kind
    made = _layers(name, {**options, "bias": bias, "bidirectional": both}, layers)
    _check(*made, has_output=True, is_penalised=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("has_output", [False, True])
def test_a_penalty_on_gradients(kind: tuple[str, dict[str, str]], has_output: bool) -> None:
    name, options = kind
    made = _layers(name, {**options, "bidirectional": True}, 1)
    _check(*made, has_output=has_output, is_penalised=True)


@pytest.mark.parametrize("kind", KINDS)
def test_the_final_state_alone(kind: tuple[str, dict[str, str]]) -> None:
    name, options = kind
    made = _layers(name, {**options, "bidirectional": True}, 2)
    _check(*made, has_output=False, is_penalised=False)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"proj_size": 2}])
def test_all_weights_are_listed_by_layer_and_direction(options):
    listed = []
    for m in (torch, gt):
        layer = m.nn.LSTM(3, 4, num_layers=2, bidirectional=True, **options)
        names = {id(param): name for name, param in layer.named_parameters()}
        weights = [[names[id(weight)] for weight in weights] for weights in layer.all_weights]
        assert weights == layer._all_weights
        listed.append(weights)
    assert listed[0] == listed[1]
