"""A 0-d tensor of integers as an index is read, and gives a view, as in PyTorch."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

import gt

DTYPES = ("int8", "int16", "int32", "int64")
# `i` is a 0-d tensor of 1, `t` a tensor of places, `mask` one of bools.
INDEXES: dict[str, Callable[..., Any]] = {
    "alone": lambda i, t, mask: i,
    "negative": lambda i, t, mask: -i,
    "columns": lambda i, t, mask: (slice(None), i),
    "last": lambda i, t, mask: (..., i),
    "two": lambda i, t, mask: (i, i),
    "two apart": lambda i, t, mask: (i, ..., i),
    "every dimension": lambda i, t, mask: (i, i, i),
    "slice": lambda i, t, mask: (i, slice(1, None)),
    "slice in front": lambda i, t, mask: (slice(None, None, 2), i),
    "new dimension": lambda i, t, mask: (i, None),
    "new dimension in front": lambda i, t, mask: (None, i),
    "limits of a slice": lambda i, t, mask: slice(i, i + 1),
    "in a list": lambda i, t, mask: [i],
    "beside a number": lambda i, t, mask: (0, i),
    "beside places": lambda i, t, mask: (i, t),
    "behind places": lambda i, t, mask: (t, i),
    "apart from places": lambda i, t, mask: (i, slice(None), t),
    "places apart": lambda i, t, mask: (t, slice(None), i),
    "between places": lambda i, t, mask: (t, i, t),
    "beside a mask": lambda i, t, mask: (i, mask),
    "beside True": lambda i, t, mask: (True, i),
    "beside False": lambda i, t, mask: (i, False),
    "beside a mask of no dimensions": lambda i, t, mask: (i == 1, i),
}
# Those that share memory, whose strides are PyTorch's: a copy of GT is in order.
VIEWS = {name for name in INDEXES if not {"places", "mask", "True", "False"} & {*name.split()}}
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.permute(2, 0, 1),
    "sliced": lambda x: x[:, 1:, ::2],
    "expanded": lambda x: x[:, :1, :1].expand(3, 4, 5),
}
LISTED = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")


def outcome(program: Callable[[Any], Any], module: Any) -> object:
    """Outcome of a program: lists, or the class and the first line of its error."""
    try:
        return [described(value) for value in program(module)]
    except Exception as error:  # noqa: BLE001 - compared with PyTorch's
        classes = (IndexError, ValueError, TypeError, RuntimeError)
        kind = next(known for known in classes if isinstance(error, known))
        return kind, str(error).splitlines()[0].split(". ")[0].rstrip(".")


def described(value: Any) -> object:
    if not isinstance(value, torch.Tensor | gt.Tensor):
        return value
    dtype = str(value.dtype).partition(".")[2]
    return value.tolist(), list(value.shape), dtype


def check(program: Callable[[Any], Any]) -> None:
    expected = outcome(program, torch)
    assert outcome(program, gt) == expected


def base(m: Any) -> Any:
    return m.arange(60.0).reshape(3, 4, 5)


def arguments(m: Any, dtype: str, columns: int) -> Iterator[Any]:
    """The values of an entry of INDEXES, for a tensor of so many columns."""
    yield m.tensor(1, dtype=getattr(m, dtype))
    yield m.tensor([0, 2])
    yield m.tensor([place % 2 == 0 for place in range(columns)])


def read(m: Any, layout: str, index: str, dtype: str) -> Iterator[Any]:
    whole = base(m)
    x = LAYOUTS[layout](whole)
    part = x[INDEXES[index](*arguments(m, dtype, x.shape[1]))]
    yield part.clone()
    yield from part.stride() if index in VIEWS else ()
    whole.mul_(2)
    yield part
    if layout != "expanded":
        part.add_(100)
    yield whole


def written(m: Any, layout: str, index: str, dtype: str) -> Iterator[Any]:
    whole = base(m)
    x = LAYOUTS[layout](whole)
    key = INDEXES[index](*arguments(m, dtype, x.shape[1]))
    if layout != "expanded":
        x[key] = -1.0
        x[key] = m.full_like(x[key], 7.0)
        x[key] += 1
    yield whole


@LISTED
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_and_memory_are_those_of_pytorch(layout: str, index: str) -> None:
    for dtype in DTYPES:
        check(partial(read, layout=layout, index=index, dtype=dtype))
        check(partial(written, layout=layout, index=index, dtype=dtype))


MISTAKES: dict[str, Callable[[Any, Any], Any]] = {
    "too large": lambda m, x: x[m.tensor(3)],
    "too small": lambda m, x: x[:, m.tensor(-5)],
    "behind dots": lambda m, x: x[..., m.tensor(9)],
    "beside places": lambda m, x: x[m.tensor(3), m.tensor([0])],
    "behind places": lambda m, x: x[m.tensor([0]), m.tensor(7)],
    "too many": lambda m, x: x[m.tensor(0), m.tensor(0), m.tensor(0), m.tensor(0)],
    "of no dimensions": lambda m, x: m.tensor(3.0)[m.tensor(0)],
    "float": lambda m, x: x[m.tensor(1.0)],
    "complex": lambda m, x: x[m.tensor(1j)],
    "written too large": lambda m, x: x.__setitem__(m.tensor(3), 1),
    "written in a wrong shape": lambda m, x: x.__setitem__(m.tensor(1), m.zeros(2)),
    "expanded": lambda m, x: x[:1].expand(3, 4, 5)[:, m.tensor(0)].add_(1),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_those_of_pytorch(mistake: str) -> None:
    check(lambda m: [MISTAKES[mistake](m, base(m))])


@pytest.mark.parametrize(("dtype", "value"), [*itertools.product(("bool", "uint8"), (0, 1))])
def test_bytes_and_bools_are_masks(dtype: str, value: int) -> None:
    def program(m: Any) -> Iterator[Any]:
        x, mask = base(m), m.tensor(value, dtype=getattr(m, dtype))
        yield from (x[mask], x[mask, 1], x[1, mask])
        x[mask] = 5
        yield x

    check(program)


def weight_of_an_embedding(m: Any) -> Iterator[Any]:
    weight = m.nn.Parameter(m.ones(4, 3))
    with m.no_grad():
        weight[m.tensor(2)].fill_(7.0)
    yield weight
    weight[m.tensor(1)].mul_(2)


def rows_of_ids(m: Any) -> Iterator[Any]:
    x = m.zeros(4, 3)
    for i in m.tensor([1, 3, 1]):
        x[i].add_(10)
        x[i, i % 3] = -1
    yield x


def gradients(m: Any) -> Iterator[Any]:
    x = m.arange(12.0).reshape(4, 3).requires_grad_()
    y = x * 2
    row = y[m.tensor(1)]
    y.mul_(3)
    row.pow_(2)
    y[:, m.tensor(0)] = row[m.tensor(2)] * 5
    (y * y).sum().backward()
    yield from (x.grad, y, row)


def largest(m: Any) -> Iterator[Any]:
    x = m.tensor([3.0, 9.0, 4.0], requires_grad=True)
    top = x[x.argmax()]
    top.backward()
    yield from (top, x.grad)
    with m.no_grad():
        x[x.argmin()] = 0
        x.detach()[x.argmax()].zero_()
    yield x


def twice_differentiated(m: Any) -> Iterator[Any]:
    x = m.tensor([[3.0, 9.0], [4.0, 1.0]], requires_grad=True)
    (first,) = m.autograd.grad((x[m.tensor(1)] ** 3).sum(), x, create_graph=True)
    yield first
    yield from m.autograd.grad(first[m.tensor(1), m.tensor(0)], x)


def mapped(m: Any) -> Iterator[Any]:
    yield m.func.vmap(lambda y, i: y[i])(base(m), m.tensor([0, 2, 1]))


@pytest.mark.parametrize(
    "program",
    [weight_of_an_embedding, rows_of_ids, gradients, largest, twice_differentiated, mapped],
)
def test_programs(program: Callable[[Any], Iterator[Any]]) -> None:
    check(program)
