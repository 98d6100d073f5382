"""Writes into the parts that a split gives, with gradients, as in PyTorch."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import gt

SPLITS: dict[str, Callable[[Any, Any], Any]] = {
    "tensor_split": lambda m, x: x.tensor_split(3),
    "tensor_split of columns": lambda m, x: m.tensor_split(x, 2, dim=-1),
    "tensor_split at places": lambda m, x: x.tensor_split((1, 3), 1),
    "tensor_split at a tensor's": lambda m, x: m.tensor_split(x, m.tensor([1, 3])),
    "hsplit": lambda m, x: x.hsplit(2),
    "hsplit at places": lambda m, x: m.hsplit(x, (1,)),
    "vsplit": lambda m, x: m.vsplit(x, 2),
    "vsplit at places": lambda m, x: x.vsplit([1, 2]),
    "dsplit": lambda m, x: x.dsplit(2),
    "dsplit at places": lambda m, x: m.dsplit(x, (1, 3)),
    "split": lambda m, x: x.split(2),
    "split of sizes": lambda m, x: m.split(x, (1, 3)),
    "chunk": lambda m, x: x.chunk(2, 1),
    "unbind": lambda m, x: m.unbind(x),
}
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x * 1,
    "transposed": lambda x: (x * 1).transpose(0, 2),
    "sliced": lambda x: x.repeat(2, 1, 1)[::2],
}


def recorded(m: Any, x: Any, split: Callable[[Any, Any], Any]) -> Iterator[Any]:
    """A write into a part after the split, and one into the whole, before the backward pass."""
    parts = split(m, x)
    parts[0].mul_(3)
    x.pow_(2)
    parts[-1][0] = parts[0].sum()
    (x * x).sum().backward()
    yield from (x, *parts)


def without_record(m: Any, x: Any, split: Callable[[Any, Any], Any]) -> Iterator[Any]:
    with m.no_grad():
        parts = split(m, x)
        parts[0].add_(1)
    yield x
    parts[0].add_(1)


def detached(m: Any, x: Any, split: Callable[[Any, Any], Any]) -> Iterator[Any]:
    parts = split(m, x.detach())
    parts[-1].fill_(7)
    yield x
    (x * 1).sum().backward()


def outcome(
    m: Any,
    layout: str,
    program: Callable[..., Iterator[Any]],
    split: str,
) -> object:
    leaf = m.arange(64.0).reshape(4, 4, 4).requires_grad_()
    values: list[object] = []
    x = LAYOUTS[layout](leaf) if layout != "leaf" else leaf
    try:
        values += [value.tolist() for value in program(m, x, SPLITS[split])]
    except RuntimeError as error:
        return values, str(error).split(". ")[0], x.tolist()
    return values, None if leaf.grad is None else leaf.grad.tolist()


@pytest.mark.parametrize("program", [recorded, without_record, detached])
@pytest.mark.parametrize("layout", ["leaf", *LAYOUTS])
@pytest.mark.parametrize("split", SPLITS)
def test_writes(split: str, layout: str, program: Callable[..., Iterator[Any]]) -> None:
    expected = outcome(torch, layout, program, split)
    assert outcome(gt, layout, program, split) == expected
