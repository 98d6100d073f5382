"""Reductions and scans: `axis` may be None or several, and integers keep their kind."""

from collections.abc import Callable

import gt
from gt._core import Tensor, dtype
from gt.compat.array_api.dtypes import axes

Axis = int | tuple[int, ...] | None


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The greatest element."""
    return gt.amax(x, axes(axis, x.ndim), keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The least element."""
    return gt.amin(x, axes(axis, x.ndim), keepdims)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean."""
    return gt.mean(x, axes(axis, x.ndim), keepdims)


def sum(
    x: Tensor, /, *, axis: Axis = None, dtype: dtype | None = None, keepdims: bool = False
) -> Tensor:
    """The sum; of integers and bools as int64."""
    if axis == ():
        return x.to(dtype or _total(x))
    return gt.sum(x, axes(axis, x.ndim), keepdims, dtype=dtype)


def prod(
    x: Tensor, /, *, axis: Axis = None, dtype: dtype | None = None, keepdims: bool = False
) -> Tensor:
    """The product; of integers and bools as int64."""
    out = x.to(dtype or _total(x))
    for one in sorted((at % x.ndim for at in axes(axis, x.ndim)), reverse=True):
        out = gt.prod(out, one, keepdims)
    return out


def _total(x: Tensor) -> dtype:
    return x.dtype if x.dtype.is_floating_point or x.is_complex() else gt.int64


def std(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The standard deviation, of the whole population by default."""
    return gt.std(x, axes(axis, x.ndim), correction=correction, keepdim=keepdims)


def var(
    x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The variance, of the whole population by default."""
    return gt.var(x, axes(axis, x.ndim), correction=correction, keepdim=keepdims)


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True where no element along `axis` is zero."""
    return _reduced(gt.all, x.to(gt.bool), axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True where an element along `axis` is not zero."""
    return _reduced(gt.any, x.to(gt.bool), axis, keepdims)


def _reduced(
    function: Callable[[Tensor, int, bool], Tensor], x: Tensor, axis: Axis, keepdims: bool
) -> Tensor:
    for one in sorted((at % x.ndim for at in axes(axis, x.ndim)), reverse=True):
        x = function(x, one, keepdims)
    return x


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Number of elements that are not zero."""
    return sum((x != 0).to(gt.int64), axis=axis, keepdims=keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the greatest element, the first of equal ones."""
    return _index(gt.argmax, x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the least element, the first of equal ones."""
    return _index(gt.argmin, x, axis, keepdims)


def _index(
    function: Callable[[Tensor, int, bool], Tensor], x: Tensor, axis: int | None, keepdims: bool
) -> Tensor:
    if axis is not None:
        return function(x, axis, keepdims)
    out = function(x.reshape(-1), 0, False)
    return out.reshape((1,) * x.ndim) if keepdims else out


def cumulative_sum(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: dtype | None = None,
    include_initial: bool = False,
) -> Tensor:
    """Sums up to each element; with `include_initial` a zero first."""
    return _scan(gt.cumsum, gt.zeros_like, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Tensor,
    /,
    *,
    axis: int | None = None,
    dtype: dtype | None = None,
    include_initial: bool = False,
) -> Tensor:
    """Products up to each element; with `include_initial` a one first."""
    return _scan(gt.cumprod, gt.ones_like, x, axis, dtype, include_initial)


def _scan(
    function: Callable[[Tensor, int], Tensor],
    initial: Callable[[Tensor], Tensor],
    x: Tensor,
    axis: int | None,
    dtype: dtype | None,
    include_initial: bool,
) -> Tensor:
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"axis is needed for an array with {x.ndim} dimensions")
        axis = 0
    values = x.to(dtype or _total(x))
    out = function(values, axis)
    return gt.cat([initial(values.narrow(axis, 0, 1)), out], axis) if include_initial else out


def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Differences of neighbours, `n` times."""
    return gt.diff(x, n, axis, prepend=prepend, append=append)
