"""Reductions by the order of elements, for numpy: values along a dimension and their places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gt.worker.backend import Kernel
from gt.worker.reference.values import Array, marked, widened

# Function of a vector that returns the index of the chosen element.
Place = Callable[[Array], int]


def running_extreme(reaches: Callable[[Array, Array], Array]) -> Kernel:
    """The kernel of cummax (`reaches`: greater_equal) or cummin: NaN stays, the last of equals
    wins.
    """

    def kernel(self: Array, dim: int) -> tuple[Array, Array]:
        places = np.zeros(self.shape, dtype=np.int64)
        if self.ndim == 0 or self.size == 0:
            return self.copy(), places
        wide, out = np.moveaxis(widened(self), dim, 0), np.moveaxis(places, dim, 0)
        best, place = wide[0], out[0]
        for step, value in enumerate(wide):
            taken = np.isnan(value) | (reaches(value, best) & ~np.isnan(best))
            best, place = np.where(taken, value, best), np.where(taken, step, place)
            out[step] = place
        return _taken(self, places, dim), places

    return kernel


def chosen(place: Place) -> Kernel:
    """The kernel of a row that picks an element of each vector along `dim`."""

    def kernel(self: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
        if self.ndim == 0:
            return self.copy(), np.zeros((), dtype=np.int64)
        places = np.apply_along_axis(place, dim, widened(self))
        places = np.expand_dims(np.asarray(places, dtype=np.int64), dim)
        values = _taken(self, places, dim)
        if keepdim:
            return values, places
        return marked(np.squeeze(np.asarray(values), axis=dim), self), np.squeeze(places, axis=dim)

    return kernel


def _taken(self: Array, places: Array, dim: int) -> Array:
    return marked(np.take_along_axis(np.asarray(self), places, axis=dim), self)


def most_frequent(values: Array) -> int:
    """The last index of the most frequent value; of the smallest one among several."""
    different, counts = np.unique(values, return_counts=True)
    return int(np.flatnonzero(values == different[np.argmax(counts)])[-1])


def median_place(values: Array) -> int:
    """Index of the middle value, the lower one of two; of the first NaN if there is one."""
    unknown = np.flatnonzero(np.isnan(values))
    if len(unknown):
        return int(unknown[0])
    return int(np.argsort(values, kind="stable")[(len(values) - 1) // 2])


def nanmedian_place(values: Array) -> int:
    """Index of the middle value among the numbers; the first index if there are none."""
    count = int(np.sum(~np.isnan(values)))
    return int(np.argsort(values, kind="stable")[max(count - 1, 0) // 2])
