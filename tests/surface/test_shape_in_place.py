"""`t_`, `unsqueeze_` and their like: a tensor gets another shape in its memory, as in PyTorch."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import gt

METHODS: dict[str, Callable[[Any], Any]] = {
    "t_": lambda x: x.t_() if x.ndim < 3 else x.swapdims_(0, 2),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.squeeze_(),
    "squeeze_ of one": lambda x: x.squeeze_(0),
    "transpose_": lambda x: x.transpose_(0, -1),
    "swapaxes_": lambda x: x.swapaxes_(-1, 0),
}
# Each makes a tensor of x, which is 4 x 3.
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x * 1,
    "of one row": lambda x: x[:1] * 1,
    "expanded": lambda x: (x[:, :1] * 1).expand(4, 3),
    "expanded in front": lambda x: (x[0] * 1).expand(2, 3),
    "expanded by a dimension": lambda x: (x * 1).expand(1, 4, 3),
    "expanded to one size": lambda x: (x[:1, :1] * 1).expand(4, 4),
    "transposed": lambda x: (x * 1).t(),
    "row": lambda x: (x * 1)[2:3],
    "columns": lambda x: (x * 1)[:, 1:],
    "diagonal": lambda x: (x * 1).diagonal(),
}


def alone(m: Any, x: Any, change: Callable[[Any], Any]) -> Iterator[Any]:
    assert change(x) is x
    yield from (x, x.stride(), x.is_contiguous(), x.storage_offset())
    yield x * 2


def written(m: Any, x: Any, change: Callable[[Any], Any]) -> Iterator[Any]:
    change(x)
    x.mul_(3)
    x[..., 0] = 7
    yield x


def beside_a_view(m: Any, x: Any, change: Callable[[Any], Any]) -> Iterator[Any]:
    row, whole = x[0], x.view_as(x)
    change(x)
    yield from (row, whole, x)
    x.add_(1)
    yield from (row, whole, x)
    row.mul_(2)
    yield from (row, whole, x)


def beside_a_twin(m: Any, x: Any, change: Callable[[Any], Any]) -> Iterator[Any]:
    twin = x.detach()
    change(x)
    yield from (twin, x)
    with m.no_grad():
        twin.mul_(5)
        yield from (twin, x)
    x.sub_(1)
    yield from (twin, x)


def twin_changed(m: Any, x: Any, change: Callable[[Any], Any]) -> Iterator[Any]:
    twin = x.detach()
    change(twin)
    twin[..., 0] = 7
    yield from (twin, x)
    x.add_(1)
    yield from (twin, x)


def base_written(m: Any, x: Any, change: Callable[[Any], Any]) -> Iterator[Any]:
    base = x * 2
    part = base[..., 1:]
    change(part)
    base.mul_(2)
    yield from (base, part)
    part.sin_()
    yield from (base, part)


def twice(m: Any, x: Any, change: Callable[[Any], Any]) -> Iterator[Any]:
    before = x.view_as(x)
    change(x)
    after = x[0]
    change(x)
    x.pow_(2)
    yield from (before, after, x)


def other_view_changed(m: Any, x: Any, change: Callable[[Any], Any]) -> Iterator[Any]:
    """Base and view change their shapes, one after the other, with writes through each."""
    base = x * 2
    part = base[:]
    change(base)
    part.mul_(3)
    base.add_(1)
    change(part)
    part[..., 0] = base.sum()
    inner = base[..., 0]
    inner.mul_(part.sum())
    yield from (inner, base, part)


def saved_before(m: Any, x: Any, change: Callable[[Any], Any]) -> Iterator[Any]:
    twin = x.detach()
    result = x.exp() + x * twin
    change(x)
    yield from (result, x)


PROGRAMS = [
    alone,
    written,
    beside_a_view,
    beside_a_twin,
    twin_changed,
    base_written,
    twice,
    other_view_changed,
    saved_before,
]


def outcome(
    m: Any,
    program: Callable[..., Iterator[Any]],
    make: Callable[[Any], Any],
    change: Callable[[Any], Any],
    recorded: str,
) -> object:
    """Values on the way, what a backward pass through the last ones leaves, or the error."""
    leaf = (m.arange(12.0).reshape(4, 3) / 4).requires_grad_(recorded != "no gradients")
    values: list[object] = []
    used: list[Any] = []
    try:
        with m.set_grad_enabled(recorded != "no_grad"):
            x = make(leaf)
            for value in program(m, x, change):
                tensor = isinstance(value, torch.Tensor | gt.Tensor)
                values.append(value.tolist() if tensor else value)
                used = [*used, value][-3:]
        outputs = [value for value in used if getattr(value, "requires_grad", False)]
        if outputs:
            sum((value * value).sum() for value in outputs).backward()
    except (RuntimeError, IndexError) as error:
        return values, str(error).split(". ")[0].split(" [")[0]
    return values, None if leaf.grad is None else leaf.grad.tolist()


@pytest.mark.parametrize("recorded", ["recorded", "no_grad", "no gradients"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("method", METHODS)
def test_values_memory_and_gradients(
    method: str, layout: str, program: Callable[..., Iterator[Any]], recorded: str
) -> None:
    expected = outcome(torch, program, LAYOUTS[layout], METHODS[method], recorded)
    assert outcome(gt, program, LAYOUTS[layout], METHODS[method], recorded) == expected


def test_a_dimension_that_is_not_there_leaves_the_tensor_as_it_was() -> None:
    def program(m: Any) -> object:
        leaf = m.ones(2, 3, requires_grad=True)
        x = leaf * 2
        row = x[0]
        with pytest.raises(IndexError, match="Dimension out of range"):
            x.transpose_(0, 5)
        x.mul_(row.sum())
        (x * x).sum().backward()
        return tuple(x.shape), row.tolist(), x._version, leaf.grad.tolist()

    assert program(gt) == program(torch)


def test_second_derivatives_go_through() -> None:
    def program(m: Any) -> object:
        leaf = m.ones(2, 3, requires_grad=True)
        x = leaf * leaf * leaf
        row = x[1]
        x.unsqueeze_(0)
        row.mul_(x.sum())
        (first,) = m.autograd.grad((x * row).sum(), leaf, create_graph=True)
        (second,) = m.autograd.grad(first.sum(), leaf)
        return first.tolist(), second.tolist()

    assert program(gt) == program(torch)


@pytest.mark.parametrize("split", [lambda x: x.split(1), lambda x: x.unbind()])
def test_one_of_several_views_keeps_its_shape(split: Callable[[Any], Any]) -> None:
    def program(m: Any) -> list[str]:
        refusals = []
        for method in METHODS.values():
            parts = split(m.ones(2, 3, 1, requires_grad=True) * 2)
            with pytest.raises(RuntimeError) as refusal:
                method(parts[0])
            refusals.append(str(refusal.value).partition("view and")[0])
        return refusals

    assert program(gt) == program(torch)


def test_a_leaf_changes_where_no_gradient_is_recorded() -> None:
    def program(m: Any) -> object:
        leaf = m.ones(2, 3, requires_grad=True)
        twin = leaf.detach()
        with m.no_grad():
            row = leaf[0]
            leaf.t_()
            row.mul_(2)
        (leaf * leaf).sum().backward()
        return leaf.tolist(), twin.tolist(), leaf.grad.tolist(), leaf.is_leaf, leaf._version

    assert program(gt) == program(torch)


@pytest.mark.parametrize("make", [lambda leaf: leaf, lambda leaf: leaf * 1])
def test_views_with_gradients_hold_the_shape_where_none_is_recorded(
    make: Callable[[Any], Any],
) -> None:
    x = make(gt.arange(9.0).reshape(3, 3).clone().requires_grad_())
    row = x[0]
    with gt.no_grad(), pytest.raises(RuntimeError, match="use the form without an underscore"):
        x.t_()
    assert row.tolist() == [0, 1, 2]
    del row
    with gt.no_grad():
        assert x.t_()[0].tolist() == [0, 3, 6]


def test_another_shape_is_a_write_to_what_was_saved() -> None:
    def program(m: Any) -> str:
        x = m.ones(2, 3, requires_grad=True) * 1
        result = x * x
        with m.no_grad():
            x.unsqueeze_(0)
        with pytest.raises(RuntimeError) as refusal:
            result.sum().backward()
        return str(refusal.value).partition(":")[0]

    assert program(gt) == program(torch)
