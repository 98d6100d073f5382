"""Activations with `inplace=True`: PyTorch's values, gradients and errors."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import gt

VALUES = [-7.0, -3.0, -1.5, -0.3, 0.0, 0.4, 1.0, 2.5, 3.0, 6.5]
ACTIVATIONS: dict[str, dict[str, Any]] = {
    "relu": {},
    "leaky_relu": {"negative_slope": 0.2},
    "elu": {"alpha": 0.7},
    "selu": {},
    "silu": {},
    "mish": {},
    "hardtanh": {"min_val": -2.0, "max_val": 0.5},
    "relu6": {},
    "hardsigmoid": {},
    "hardswish": {},
    "celu": {"alpha": 0.7},
    "rrelu": {"training": False},
    "threshold": {"threshold": 0.1, "value": 20.0},
}
NAMES = [name for name in ACTIVATIONS if hasattr(gt.nn.functional, name)]
Function = Callable[..., Any]


def applied(library: ModuleType, name: str, x: Any) -> Any:
    return getattr(library.nn.functional, name)(x, **ACTIVATIONS[name], inplace=True)


def error(action: Callable[[], object]) -> str:
    with pytest.raises(RuntimeError) as caught:
        action()
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_value_and_gradients(name: str) -> None:
    results = []
    for library in (gt, torch):
        x = library.tensor(VALUES, requires_grad=True)
        y = x * 1
        z = applied(library, name, y)
        assert z is y
        twice = name != "hardsigmoid"  # PyTorch has no second derivative of it
        (first,) = library.autograd.grad((y * y).sum(), x, create_graph=twice)
        if twice:
            (first * first).sum().backward()
        results.append((y, first, x.grad if twice else first))
    for mine, its in zip(*results, strict=True):
        np.testing.assert_allclose(mine.tolist(), its.tolist(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_of_a_view(name: str) -> None:
    results = []
    for library in (gt, torch):
        x = library.tensor([VALUES, VALUES[::-1]], requires_grad=True)
        y = x * 1
        applied(library, name, y[:, 2:9:2])
        (y * y).sum().backward()
        results.append((y, x.grad))
    for mine, its in zip(*results, strict=True):
        np.testing.assert_allclose(mine.tolist(), its.tolist(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_what_others_read_may_not_be_written(name: str) -> None:
    for library in (gt, torch):
        x = library.tensor(VALUES, requires_grad=True)
        y = x * 1
        loss = (y * y).sum()
        applied(library, name, y)
        assert "modified by an inplace operation" in error(loss.backward)


@pytest.mark.parametrize("name", NAMES)
def test_a_leaf_is_no_place(name: str) -> None:
    messages = []
    for library in (gt, torch):
        x = library.tensor(VALUES, requires_grad=True)
        messages.append(error(lambda: applied(library, name, x)))  # noqa: B023 - called at once
        assert x.tolist() == pytest.approx(VALUES)
        with library.no_grad():
            applied(library, name, x)
        assert x.requires_grad
    mine, its = messages
    assert mine.startswith(its.rstrip("."))


@pytest.mark.parametrize("name", ["ReLU", "LeakyReLU", "ELU", "SELU", "SiLU", "Mish", "Hardswish"])
def test_the_layers_take_it_too(name: str) -> None:
    results = []
    for library in (gt, torch):
        x = library.tensor(VALUES, requires_grad=True)
        y = getattr(library.nn, name)(inplace=True)(x * 1)
        y.sum().backward()
        results.append((y, x.grad))
    for mine, its in zip(*results, strict=True):
        np.testing.assert_allclose(mine.tolist(), its.tolist(), rtol=1e-5, atol=1e-6)
