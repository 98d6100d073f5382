"""Lists of more tensors than one instruction has room for: values, gradients and errors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gt

COUNT = 70_000
Lists = tuple[list[Any], list[Any]]


@pytest.fixture(scope="module")
def lists() -> Lists:
    """Equal small leaves of PyTorch and of GT."""
    sides: list[list[Any]] = []
    for t in (torch, gt):
        whole = t.arange(COUNT, dtype=t.float32) % 7
        sides.append([part.detach().requires_grad_() for part in whole.reshape(COUNT, 1).unbind()])
    return sides[0], sides[1]


JOINS = (
    *("cat", "concat", "concatenate", "stack", "hstack"),
    *("vstack", "row_stack", "dstack", "column_stack"),
)
DISTINCT_JOINS = ("cat", "stack", "hstack", "vstack", "dstack", "column_stack")
FUNCTIONS: dict[str, Callable[[Any, list[Any]], Any]] = {
    name: lambda t, parts, name=name: getattr(t, name)(parts) for name in JOINS
} | {
    "stack of numbers": lambda t, parts: t.stack([part[0] for part in parts]),
    "stack along the last": lambda t, parts: t.stack(parts, -1),
    "stack of pairs": lambda t, parts: t.stack([part.expand(2) for part in parts], 1),
    "cat along the last": lambda t, parts: t.cat([part.expand(2, 1) for part in parts], -1),
    "cat with nothing in it": lambda t, parts: t.cat([t.ones(0), *parts, t.ones(0)]),
    "cat of two dtypes": lambda t, parts: t.cat([parts[0].int()] * 40_000 + parts[:30_000]),
    "tensor": lambda t, parts: t.tensor([part.detach()[0] for part in parts]),
    "pad_sequence": lambda t, parts: t.nn.utils.rnn.pad_sequence(parts),
    "pack_sequence": lambda t, parts: t.nn.utils.rnn.pack_sequence(parts).data,
    "parameters_to_vector": lambda t, parts: t.nn.utils.parameters_to_vector(parts),
    "get_total_norm": lambda t, parts: t.nn.utils.get_total_norm(parts),
    "default_collate": lambda t, parts: t.utils.data.default_collate([x.detach() for x in parts]),
    "unbind": lambda t, parts: t.stack(t.cat(parts).unbind()),
    "split": lambda t, parts: t.cat(t.cat(parts).split(1)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(lists: Lists, name: str) -> None:
    expected, got = (FUNCTIONS[name](t, parts) for t, parts in zip((torch, gt), lists, strict=True))
    assert tuple(got.shape) == tuple(expected.shape)
    assert repr(got.dtype).removeprefix("gt.") == repr(expected.dtype).removeprefix("torch.")
    np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize("name", [*DISTINCT_JOINS, "cat along the last", "cat with nothing in it"])
def test_gradients_of_all(lists: Lists, name: str) -> None:
    found = []
    for t, parts in zip((torch, gt), lists, strict=True):
        loss = (FUNCTIONS[name](t, parts) ** 3).sum()
        found.append(t.stack(t.autograd.grad(loss, parts)).numpy())
    np.testing.assert_array_equal(found[1], found[0])


def test_gradients_of_some(lists: Lists) -> None:
    """Vectors without elements are among the tensors, and few of them have a gradient."""
    found = []
    for t, parts in zip((torch, gt), lists, strict=True):
        mixed = [x if place % 1000 == 3 else x.detach() for place, x in enumerate(parts)]
        whole = t.cat([part for x in mixed for part in (t.ones(0), x.expand(1 + len(x)))])
        loss = (whole * t.arange(len(whole), dtype=t.float32)).sum()
        found.append([g.item() for g in t.autograd.grad(loss, parts[3::1000])])
    assert found[1] == found[0]


@pytest.mark.parametrize("name", ["cat", "stack"])
def test_gradients(lists: Lists, name: str) -> None:
    for t, parts in zip((torch, gt), lists, strict=True):
        loss = (FUNCTIONS[name](t, parts) ** 2).sum()
        found = t.autograd.grad(loss, [parts[3], parts[-1]])
        assert [grad.item() for grad in found] == [
            2 * part.item() for part in (parts[3], parts[-1])
        ]


@pytest.mark.parametrize("name", ["cat", "stack"])
@pytest.mark.parametrize("shape", [(1, 3), (2,)])
def test_errors_count_the_whole_list(name: str, shape: tuple[int, ...]) -> None:
    texts = []
    for t in (torch, gt):
        parts = [t.ones(1, 2)] * 69_000 + [t.ones(*shape)] + [t.ones(1, 2)] * 9
        with pytest.raises(RuntimeError) as caught:
            getattr(t, name)(parts)
        texts.append(str(caught.value))
    assert texts[1].startswith(texts[0].rstrip("."))
    assert len(texts[1]) < 500
