"""Running products and extremes, differences, and integrals of lines."""

import math

import gt
from gt import _core
from gt._core import Tensor, call
from gt.compat.return_types import ValuesIndices, values_indices
from gt.composite.common import Method, Number, generic, integer, slice_dim, wrap
from gt.errors import ShapeError
from gt.tensors.kept import keeps


@keeps(self="self out")
def cumprod(self: Tensor, dim: int, *, dtype: _core.dtype | None = None) -> Tensor:
    """Products of all elements up to each one along `dim`.

    Each step doubles the number of factors in an element, so that n factors take log2(n) products
    (in another order than PyTorch's, which shows in the last digits).

    Args:
        dim: The dimension.
        dtype: Dtype of the result; integers become int64 without it.
    """
    place = wrap(dim, self.ndim)
    target = dtype or (self.dtype if self.dtype.is_floating_point else gt.int64)
    out = self.to(target)
    if self.ndim == 0:
        return out.clone()
    if target in (gt.float16, gt.bfloat16):
        out = out.float()
    size, done = self.shape[place], 1
    if size < 2:
        return out.to(target).clone()
    if out.requires_grad:  # a NaN's own gradient is NaN, as in PyTorch, which divides by it
        out = out * call("where", out.detach().isnan(), math.nan, 1.0)
    while done < size:
        rest = slice_dim(out, place, done, size - done) * slice_dim(out, place, 0, size - done)
        out = call("cat", slice_dim(out, place, 0, done), rest, dim=place)
        done *= 2
    return out.to(target)


def diff(
    self: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Each element minus the one before along `dim`, `n` times.

    Args:
        n: Number of times; 0 returns the tensor itself, without prepend and append.
        dim: The dimension.
        prepend: Values before the first element.
        append: Values behind the last element.

    Raises:
        ShapeError: The tensor has no dimensions, or `n` is negative.
    """
    if self.ndim == 0:
        raise ShapeError("diff expects input to be at least one-dimensional")
    n = integer(n, "n")
    if n < 0:
        raise ShapeError(f"order must be non-negative but got {n}")
    place = wrap(dim, self.ndim)
    if n == 0:
        return self.clone()
    parts = [part for part in (prepend, self, append) if part is not None]
    out = gt.cat(parts, dim=place) if len(parts) > 1 else self
    for _ in range(min(n, out.shape[place])):
        rest = out.shape[place] - 1
        later, before = slice_dim(out, place, 1, rest), slice_dim(out, place, 0, rest)
        out = later.logical_xor(before) if out.dtype == gt.bool else later - before
    return out


def cummax(self: Tensor, dim: int) -> ValuesIndices:
    """The largest element up to each one along `dim`, and its index, the last of equal ones."""
    return values_indices("cummax", call("cummax", self, dim=dim))


def cummin(self: Tensor, dim: int) -> ValuesIndices:
    """The smallest element up to each one along `dim`, and its index, the last of equal ones."""
    return values_indices("cummin", call("cummin", self, dim=dim))


def trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: int = -1
) -> Tensor:
    """The integral along `dim` of straight lines between the values.

    Args:
        y: the values.
        x: their positions: of the shape of `y`, or a vector.
        dx: distance of two values, 1 if not given.
        dim: the dimension.
    """
    if _is_refused(y, x, dx, dim):
        return _by_generic("trapezoid", y, x, dx, dim)
    if x is not None:
        return call("sum", _areas(y, x, dim), dim=(dim,), keepdim=False) / 2
    ends = call("select", y, dim=dim, index=0) + call("select", y, dim=dim, index=-1)
    return (call("sum", y, dim=(dim,), keepdim=False) - ends * 0.5) * (1 if dx is None else dx)


def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: Number | None = None, dim: int = -1
) -> Tensor:
    """The integral along `dim` up to each value except the first, by `trapezoid`."""
    if _is_refused(y, x, dx, dim):
        return _by_generic("cumulative_trapezoid", y, x, dx, dim)
    areas = _areas(y, 1 if x is None else x, dim).cumsum(dim)
    return areas * (0.5 if dx is None else dx / 2)  # last, as in PyTorch for integers


def _areas(y: Tensor, x: Tensor | Number, dim: int) -> Tensor:
    """Twice the area between two neighbouring values."""
    place = wrap(dim, y.ndim)
    rest = y.shape[place] - 1
    both = slice_dim(y, place, 0, rest) + slice_dim(y, place, 1, rest)
    if not isinstance(x, Tensor):
        return both * x
    if x.ndim == y.ndim:
        return both * diff(x, dim=place)
    return both * diff(x).reshape(tuple(-1 if at == place else 1 for at in range(y.ndim)))


def _is_refused(y: Tensor, x: Tensor | None, dx: Number | None, dim: int) -> bool:
    """True if PyTorch's operator is to raise the error, or to give the result of an empty
    dimension.
    """
    if y.dtype == _core.bool or not -y.ndim <= dim < y.ndim or y.shape[dim] == 0:
        return True
    if x is None:
        return False
    fits = x.shape == y.shape or x.shape == (y.shape[dim],)
    return dx is not None or x.dtype == _core.bool or not fits


def _by_generic(name: str, y: Tensor, x: Tensor | None, dx: Number | None, dim: int) -> Tensor:
    words = {} if dx is None else {"dx": dx}
    return generic(name, y, *(() if x is None else (x,)), dim=dim, **words)


METHODS: dict[str, Method] = {
    "cummax": cummax,
    "cummin": cummin,
    "cumprod": cumprod,
    "diff": diff,
}

# Functions that are no methods in PyTorch.
FUNCTIONS: dict[str, Method] = {
    "cumulative_trapezoid": cumulative_trapezoid,
    "trapezoid": trapezoid,
    "trapz": trapezoid,
}
