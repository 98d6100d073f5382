"""Views of a tensor that is resized in place afterwards: gradients are PyTorch's, or an error."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import gt

RESIZED = "was resized in place since"
RESIZES: dict[str, Callable[[Any, Any], object]] = {
    "another shape": lambda m, x: x.resize_(3, 4),
    "flat": lambda m, x: x.resize_(12),
    "of a template": lambda m, x: x.resize_as_(m.ones(2, 2, 3)),
    "there and back": lambda m, x: (x.resize_(2, 6), x.resize_(4, 3)),
    "smaller": lambda m, x: x.resize_(2, 2),
    "smaller and back": lambda m, x: (x.resize_(2), x.resize_(4, 3)),
    "nothing": lambda m, x: x.resize_(0),
}
VIEWS: dict[str, Callable[[Any], Any]] = {
    "row": lambda x: x[0],
    "last row": lambda x: x[-1],
    "rows": lambda x: x[1:3],
    "every second": lambda x: x[:, ::2],
    "transposed": lambda x: x.t(),
    "flat": lambda x: x.view(-1),
    "unsqueezed": lambda x: x.unsqueeze(0),
    "diagonal": lambda x: x.diagonal(),
    "expanded": lambda x: x[:1].expand(2, 3),
    "window": lambda x: x.unfold(0, 2, 1),
    "view of a view": lambda x: x.t()[1:, 1:],
    "one element": lambda x: x[0, 0],
}
ROOTS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda m: m.arange(12.0).reshape(4, 3).clone(),
    "detached part": lambda m: m.arange(16.0)[4:].view(4, 3).detach(),
    "complex": lambda m: (m.arange(12.0).reshape(4, 3) * (1 + 2j)).clone(),
}


def read(m: Any, x: Any, view: Any) -> list[Any]:
    """The gradient of what the view shows, and of the tensor itself."""
    x.requires_grad_()
    facts = [view.requires_grad, view.is_leaf]
    ((view * view.detach().conj()).sum().abs() + (x * 2).sum().abs()).backward()
    return [*facts, x.grad.tolist()]


def overwritten(m: Any, x: Any, view: Any) -> list[Any]:
    """The gradient of what is written to the tensor, read through the view."""
    y = m.ones(x.shape, dtype=x.dtype).requires_grad_()
    x.mul_(y)
    (view * view.detach().conj()).sum().abs().backward()
    return [x.tolist(), y.grad.tolist()]


def written(m: Any, x: Any, view: Any) -> list[Any]:
    """The gradient of what is written through the view, read from the tensor."""
    y = m.ones(view.shape, dtype=x.dtype).requires_grad_()
    view.mul_(y)
    (x * x.detach().conj()).sum().abs().backward()
    return [x.tolist(), y.grad.tolist()]


def outcome(m: Any, program: Callable[..., list[Any]], root: str, view: str, size: str) -> object:
    x = ROOTS[root](m)
    part = VIEWS[view](x)
    RESIZES[size](m, x)
    try:
        return program(m, x, part)
    except RuntimeError as error:
        return str(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [read, overwritten, written])
@pytest.mark.parametrize("size", RESIZES)
def test_gradients_are_pytorchs_or_refused(size, program):
    refused = set()
    for root, view in itertools.product(ROOTS, VIEWS):
        ours, theirs = (outcome(m, program, root, view, size) for m in (gt, torch))
        if isinstance(ours, str) and RESIZED in ours:
            refused.add(view)
            continue
        if isinstance(theirs, str):
            assert isinstance(ours, str), (root, view, theirs, ours)
            continue
        assert ours == theirs, (root, view)
    # Elements that the tensor does not have any more: PyTorch drops their gradient.
    if size in {"smaller", "nothing"}:
        assert "last row" in refused
        assert size == "nothing" or "row" not in refused
    else:
        assert not refused
