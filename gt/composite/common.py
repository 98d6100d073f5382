"""What the files of this package share: names that numpy users type, dimension checks, results."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, ParamSpec, TypeAlias, TypeVar

from gt._core import Tensor, call
from gt.errors import IndexOutOfRange, ShapeError

Shape: TypeAlias = tuple[int, ...]
Dims: TypeAlias = int | Sequence[int] | None
Number: TypeAlias = bool | int | float
Method: TypeAlias = Callable[..., object]
P = ParamSpec("P")
R = TypeVar("R")

NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}


class ValuesIndices(NamedTuple):
    """Values and where they stood along a dimension."""

    values: Tensor
    indices: Tensor


def numpy_names(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which also takes `axis` for `dim` and `keepdims` for `keepdim`."""

    @functools.wraps(function)
    def renamed(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs:
            for name in NUMPY_NAMES.keys() & kwargs.keys():
                kwargs[NUMPY_NAMES[name]] = kwargs.pop(name)
        return function(*args, **kwargs)

    return renamed


def wrap(dim: int, ndim: int) -> int:
    """`dim` counted from the front."""
    bound = max(ndim, 1)
    if not -bound <= dim < bound:
        raise IndexOutOfRange(
            f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], "
            f"but got {dim})"
        )
    return dim % bound


def sizes(size: Sequence[int | Sequence[int]]) -> Shape:
    """`f(2, 3)` and `f((2, 3))` alike."""
    if len(size) == 1 and not isinstance(size[0], int):
        return tuple(size[0])
    return tuple(n for n in size if isinstance(n, int))


def dims(dim: Dims, ndim: int) -> Shape:
    """The given dimensions counted from the front; all where none is given."""
    if dim is None:
        return tuple(range(ndim))
    return tuple(wrap(d, ndim) for d in ((dim,) if isinstance(dim, int) else dim))


def piece(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements from `start` along `dim`."""
    return call("slice", x, dim=dim, start=start, end=start + length, step=1)


def broadcast_shapes(*shapes: Shape | int) -> Shape:
    """The shape that all of `shapes` broadcast to."""
    rows = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
    out = [1] * max((len(row) for row in rows), default=0)
    for row in rows:
        for place, n in enumerate(reversed(row), 1):
            if n not in {1, out[-place]}:
                if out[-place] != 1:
                    raise ShapeError(
                        "Shape mismatch: objects cannot be broadcast to a single shape: "
                        + ", ".join(str(list(row)) for row in rows)
                    )
                out[-place] = n
    return tuple(out)
