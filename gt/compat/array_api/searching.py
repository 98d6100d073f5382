"""Order, places and sets of elements, as the standard names their arguments."""

from typing import NamedTuple

import gt
from gt._core import Tensor
from gt.compat.array_api.dtypes import Real


class UniqueAll(NamedTuple):
    """Result of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


def positive(x: Tensor, /) -> Tensor:
    """`x`."""
    return +x


def clip(
    x: Tensor, /, min: Real | Tensor | None = None, max: Real | Tensor | None = None
) -> Tensor:
    """`x` limited to [min, max], in its own dtype."""
    if min is None and max is None:
        return x.clone()
    return gt.clamp(x, min, max).to(x.dtype)


def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The indices that put `x` in order."""
    return gt.argsort(x, dim=axis, descending=descending, stable=stable)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """`x` in order along `axis`."""
    return gt.sort(x, dim=axis, descending=descending, stable=stable)[0]


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of elements that are not zero, a tensor for each dimension; reads
    their number.
    """
    if not x.ndim:
        raise ValueError("nonzero(): the array has no dimension")
    return tuple(gt.unbind(gt.nonzero(x), 1))


def searchsorted(
    x1: Tensor, x2: Tensor | Real, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Index at which each element of `x2` is inserted into the sorted `x1`."""
    return gt.searchsorted(x1, x2, side=side, sorter=sorter)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Elements along `axis` by a list of indices."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take(): axis is needed for an array with {x.ndim} dimensions")
        axis = 0
    size = x.shape[axis]
    return gt.index_select(x, axis, gt.where(indices < 0, indices + size, indices))


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements along `axis`, by an index for each place."""
    size = x.shape[axis]
    return gt.take_along_dim(x, gt.where(indices < 0, indices + size, indices), axis)


def unique_values(x: Tensor, /) -> Tensor:
    """Each value once, in order; reads their number."""
    return gt.unique(x)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Each value once, and its count."""
    return UniqueCounts(*gt.unique(x, return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Each value once, and for each element the index of its value."""
    return UniqueInverse(*gt.unique(x, return_inverse=True))


def unique_all(x: Tensor, /) -> UniqueAll:
    """Each value once, its first index, the index of each element's value, and the counts."""
    values, inverse, counts = gt.unique(x, return_inverse=True, return_counts=True)
    flat = inverse.reshape(-1)
    first = gt.full_like(counts, flat.numel())
    first = first.scatter_reduce(0, flat, gt.arange(flat.numel()), "amin")
    return UniqueAll(values, first, inverse, counts)
