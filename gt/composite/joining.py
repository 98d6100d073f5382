"""Functions of several tensors: joined, stacked, broadcast against each other."""

import math
from collections.abc import Sequence
from typing import TypeAlias, overload

import numpy as np

from gt import _core
from gt._core import Tensor, call
from gt.composite.common import Number, broadcast_shapes, not_in_list, wrap
from gt.composite.selection import nonzero
from gt.errors import InvalidType, InvalidValue, ShapeError, out_refused
from gt.tensors.dtypes import check_layout

Tensors: TypeAlias = Sequence[Tensor]

# Limit of an instruction's operands; it has at most 65,535 words.
PARTS_MAX = 1 << 15


def listed(tensors: Tensors | Tensor, function: str, out: object) -> list[Tensor]:
    """The tensors of a call; raises PyTorch's errors for other values.

    Args:
        out: raises unless it is None, since no function of GT takes it.
    """
    if out is not None:
        raise out_refused(function)
    if isinstance(tensors, Tensor):
        raise InvalidType(
            f"{function}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor"
        )
    parts = list(tensors)
    if not parts:
        raise ShapeError(f"{function} expects a non-empty TensorList")
    return parts


def cat(tensors: Tensors, dim: int = 0, *, out: None = None) -> Tensor:
    """Tensors one after the other along `dim`."""
    if isinstance(tensors, (list, tuple)) and not tensors:
        raise InvalidValue("torch.cat(): expected a non-empty list of Tensors")
    parts = listed(tensors, "cat", out)
    for place, x in enumerate(parts):
        if not isinstance(x, Tensor):
            raise not_in_list(x, place, 0)
    ndim = max(x.ndim for x in parts)
    if len(parts) > PARTS_MAX:
        same_sizes(parts, wrap(dim, ndim))
    return joined("cat", parts, wrap(dim, ndim))


def stack(tensors: Tensors, dim: int = 0, *, out: None = None) -> Tensor:
    """Tensors of one shape along a new dimension."""
    parts = listed(tensors, "stack", out)
    for place, x in enumerate(parts):
        if x.shape != parts[0].shape:
            raise ShapeError(
                f"stack expects each tensor to be equal size, but got {list(parts[0].shape)} at "
                f"entry 0 and {list(x.shape)} at entry {place}"
            )
    return joined("stack", parts, wrap(dim, parts[0].ndim + 1))


def same_sizes(parts: list[Tensor], dim: int) -> None:
    """The rule's check across all tensors, if several instructions would count them anew."""
    first = next((x for x in parts if x.shape != (0,)), parts[0])
    for place, x in enumerate(parts):
        if x.ndim != first.ndim or x.shape == (0,):
            continue  # the rule raises for these
        for at, (expected, got) in enumerate(zip(first.shape, x.shape, strict=True)):
            if expected != got and at != dim:
                raise ShapeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size "
                    f"{expected} but got size {got} for tensor number {place} in the list."
                )


def joined(operator: str, parts: list[Tensor], dim: int) -> Tensor:
    """Joins in one instruction, or in several if one has no room for all operands."""
    if len(parts) <= PARTS_MAX:
        return call(operator, *parts, dim=dim)
    groups = (parts[at : at + PARTS_MAX] for at in range(0, len(parts), PARTS_MAX))
    return joined("cat", [call(operator, *group, dim=dim) for group in groups], dim)


@overload
def atleast_1d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_1d(tensors: Tensors, /) -> tuple[Tensor, ...]: ...
@overload
def atleast_1d(
    first: Tensor | Tensors, second: Tensor | Tensors, /, *others: Tensor | Tensors
) -> tuple[Tensor, ...]: ...
def atleast_1d(*tensors: Tensor | Tensors) -> Tensor | tuple[Tensor, ...]:
    """Numbers as vectors; other tensors unchanged."""
    return one_or_all([vector(x) for x in flat_list(tensors)], tensors)


@overload
def atleast_2d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_2d(tensors: Tensors, /) -> tuple[Tensor, ...]: ...
@overload
def atleast_2d(
    first: Tensor | Tensors, second: Tensor | Tensors, /, *others: Tensor | Tensors
) -> tuple[Tensor, ...]: ...
def atleast_2d(*tensors: Tensor | Tensors) -> Tensor | tuple[Tensor, ...]:
    """Numbers and vectors as matrices of one row; other tensors unchanged."""
    return one_or_all([matrix(x) for x in flat_list(tensors)], tensors)


@overload
def atleast_3d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_3d(tensors: Tensors, /) -> tuple[Tensor, ...]: ...
@overload
def atleast_3d(
    first: Tensor | Tensors, second: Tensor | Tensors, /, *others: Tensor | Tensors
) -> tuple[Tensor, ...]: ...
def atleast_3d(*tensors: Tensor | Tensors) -> Tensor | tuple[Tensor, ...]:
    """Numbers, vectors and matrices as tensors of three dimensions; other tensors unchanged."""
    return one_or_all([box(x) for x in flat_list(tensors)], tensors)


def one_or_all(
    results: list[Tensor], given: Sequence[Tensor | Tensors]
) -> Tensor | tuple[Tensor, ...]:
    """A tensor for a call with one tensor, a tuple for others."""
    return results[0] if len(given) == 1 and isinstance(given[0], Tensor) else tuple(results)


def vector(x: Tensor) -> Tensor:
    """A number as a vector of one element; other tensors unchanged."""
    return x.reshape((1,)) if x.ndim == 0 else x


def matrix(x: Tensor) -> Tensor:
    """A vector as a matrix of one row; other tensors unchanged."""
    return x.reshape((1, *vector(x).shape)) if x.ndim < 2 else x


def box(x: Tensor) -> Tensor:
    """A matrix, or a vector as one row, with a third dimension; other tensors unchanged."""
    return x if x.ndim > 2 else matrix(x).reshape((*matrix(x).shape, 1))


def hstack(tensors: Tensors, *, out: None = None) -> Tensor:
    """Tensors one after the other along columns (vectors along their only dimension)."""
    parts = [vector(x) for x in listed(tensors, "hstack", out)]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Tensors, *, out: None = None) -> Tensor:
    """Tensors one below the other."""
    return cat([matrix(x) for x in listed(tensors, "vstack", out)], 0)


def dstack(tensors: Tensors, *, out: None = None) -> Tensor:
    """Tensors one behind the other, along a third dimension."""
    parts = [matrix(x) for x in listed(tensors, "dstack", out)]
    return cat([x.reshape((*x.shape, 1)) if x.ndim == 2 else x for x in parts], 2)


def column_stack(tensors: Tensors, *, out: None = None) -> Tensor:
    """Tensors beside each other, vectors as columns."""
    parts = listed(tensors, "column_stack", out)
    return cat([x.reshape((math.prod(x.shape), 1)) if x.ndim < 2 else x for x in parts], 1)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors expanded to one shape."""
    try:
        shape = broadcast_shapes(*(x.shape for x in tensors))
    except ShapeError as error:
        raise ShapeError(misfit(tensors)) from error
    return tuple(x if x.shape == shape else x.expand(shape) for x in tensors)


def misfit(tensors: Tensors) -> str:
    """PyTorch's message for the first sizes that do not broadcast."""
    sizes: list[int] = []  # from the last dimension
    for x in tensors:
        for place, n in enumerate(reversed(x.shape)):
            if place == len(sizes):
                sizes.append(n)
            elif sizes[place] == 1:
                sizes[place] = n
            elif n not in {1, sizes[place]}:
                dim = max(x.ndim, len(sizes)) - 1 - place
                return (
                    f"The size of tensor a ({sizes[place]}) must match the size of tensor b ({n}) "
                    f"at non-singleton dimension {dim}"
                )
    raise AssertionError(tensors)


def meshgrid(*tensors: Tensor | Tensors, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid from one vector a dimension; indexing "ij" or "xy"."""
    parts = flat_list(tensors)
    if indexing not in {"ij", "xy"}:
        raise ShapeError(
            'torch.meshgrid: indexing must be one of "xy" or "ij", but received: ' + indexing
        )
    if any(x.ndim > 1 for x in parts):
        raise ShapeError(
            "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: "
            f"{[tuple(x.shape) for x in parts]}"
        )
    if len({x.dtype for x in parts}) > 1:
        raise ShapeError("meshgrid expects all tensors to have the same dtype")
    if indexing == "xy":
        parts[:2] = parts[1::-1]
    vectors = [vector(x) for x in parts]
    shape = tuple(x.shape[0] for x in vectors)
    grids = []
    for place, x in enumerate(vectors):
        line = [1] * len(shape)
        line[place] = shape[place]
        grids.append(x.reshape(tuple(line)).expand(shape))
    if indexing == "xy":
        grids[:2] = grids[1::-1]
    return tuple(grids)


def flat_list(tensors: Sequence[Tensor | Tensors]) -> list[Tensor]:
    """The tensors of `f(a, b)` or of `f([a, b])`."""
    out: list[Tensor] = []
    for x in tensors:
        out.extend([x] if isinstance(x, Tensor) else x)
    return out


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(condition: Tensor, input: Tensor | Number, other: Tensor | Number) -> Tensor: ...
def where(
    condition: Tensor, input: Tensor | Number | None = None, other: Tensor | Number | None = None
) -> Tensor | tuple[Tensor, ...]:
    """`input` where `condition`, else `other`; without them the indices of true elements."""
    if input is None or other is None:
        return nonzero(condition, as_tuple=True)
    return call("where", condition, input, other)


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """Each class number as a row of zeros with a one; without `num_classes` reads the largest.

    With `num_classes` nothing is read: the worker refuses a number that is no class.
    """
    if input.dtype != _core.int64:
        raise ShapeError("one_hot is only applicable to index tensor of type LongTensor.")
    if input.numel() == 0 and num_classes <= 0:
        raise ShapeError("Can not infer total number of classes from empty tensor.")
    if num_classes == 0 or num_classes < -1:
        raise ShapeError("Class values must be smaller than num_classes.")
    count = int(input.amax().item()) + 1 if num_classes == -1 else num_classes
    if count < 1:
        raise ShapeError("Class values must be non-negative.")
    size = (*input.shape, count)
    zeros = call("full_like", input, size=size, value=0, dtype=_core.int64)
    return zeros.scatter(-1, input.unsqueeze(-1), 1)


def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: _core.dtype = _core.int64,
    device: object = None,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """Rows and columns of the lower triangle's elements, as a tensor of two rows."""
    check_layout(layout, "tril_indices")
    del device, pin_memory
    _check_sides(row, col)
    pairs = [(r, c) for r in range(row) for c in range(min(col, max(0, r + offset + 1)))]
    return triangle(pairs, dtype)


def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: _core.dtype = _core.int64,
    device: object = None,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """Rows and columns of the upper triangle's elements, as a tensor of two rows."""
    check_layout(layout, "triu_indices")
    del device, pin_memory
    _check_sides(row, col)
    return triangle([(r, c) for r in range(row) for c in range(max(0, r + offset), col)], dtype)


def _check_sides(row: int, col: int) -> None:
    for name, side in (("row", row), ("col", col)):
        if side < 0:
            raise ShapeError(f"{name} must be non-negative, got{side}")


def triangle(pairs: Sequence[tuple[int, int]], dtype: _core.dtype) -> Tensor:
    table = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2).T.copy()
    whole: Tensor = _core.from_numpy_copy(table, _core.int64, False)
    return whole if dtype == _core.int64 else call("cast", whole, dtype=dtype)


concat = concatenate = cat
row_stack = vstack

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_shapes",
    "broadcast_tensors",
    "cat",
    "column_stack",
    "concat",
    "concatenate",
    "dstack",
    "hstack",
    "meshgrid",
    "one_hot",
    "row_stack",
    "stack",
    "tril_indices",
    "triu_indices",
    "vstack",
    "where",
]
