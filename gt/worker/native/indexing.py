"""Rows of the families view and index of the native backend.

Quick: float32, contiguous where an index of int64 reads or writes it, and not cut along the
dimension of the index. `index_add`: along the first one. `index_put`: accumulating, by an index of
the first dimension alone. `scatter`: of a tensor. `sort`: float32, int32 and int64 of any strides,
along the last dimension.
"""

from __future__ import annotations

import numpy as np

from gt.worker.backend import Kernel
from gt.worker.native import entry
from gt.worker.native.values import FLOAT32, INT64, copied, is_float32, is_rows
from gt.worker.reference.kernels import NUMPY
from gt.worker.reference.values import Array

# Rows by kernels of their name.
_ROWS = ("embedding", "embedding_backward", "index_add", "gather", "scatter", "scatter_add")


def _cat(tensors: list[Array], dim: int) -> object:
    if not all(map(is_float32, tensors)) or any(x.ndim != tensors[0].ndim for x in tensors):
        return NUMPY["cat"](tensors, dim)  # PyTorch lets an empty tensor of one dimension be there
    return np.concatenate(tensors, axis=dim)


def _stack(tensors: list[Array], dim: int) -> object:
    return np.stack(tensors, dim) if all(map(is_float32, tensors)) else NUMPY["stack"](tensors, dim)


def _full(size: tuple[int, ...], value: float, dtype: str) -> object:
    if dtype != "float32":
        return NUMPY["full"](size, value, dtype)
    return np.full(size, value, FLOAT32) if value else np.zeros(size, FLOAT32)


def _full_like(_like: Array, size: tuple[int, ...], value: float, dtype: str) -> object:
    return _full(size, value, dtype)


def _index_select(
    self: Array, index: Array, dim: int, start: int | None = None, total: int | None = None
) -> object:
    if start is None and is_rows(self) and self.ndim > 0 and _are_rows(index, self.shape[dim]):
        return np.take(self, index, axis=dim)
    return NUMPY["index_select"](self, index, dim, start, total)


def _are_rows(indices: Array, count: int) -> bool:
    """True if all indices name a row; if not, the numpy function says which does not."""
    if indices.ndim != 1 or indices.size == 0 or indices.dtype is not INT64:
        return False
    return bool(indices.min() >= 0 and indices.max() < count)


def _index_put(
    self: Array,
    values: Array,
    indices: list[Array | None],
    accumulate: bool,
    along: int | None = None,
    start: int | None = None,
    total: int | None = None,
) -> object:
    first = indices[0] if indices and accumulate and start is None else None
    if first is not None and not any(one is not None for one in indices[1:]):
        size = (first.size, *self.shape[1:])
        if type(values) is np.ndarray and values.shape == first.shape + self.shape[1:]:
            results = entry.run("index_add", self, first.reshape(-1), values.reshape(size), 0)
            if results is not None:
                return results[0]
    return NUMPY["index_put"](self, values, indices, accumulate, along, start, total)


def _sort(self: Array, dim: int, descending: bool, stable: bool) -> object:
    x = self if self.flags.c_contiguous else copied(self)
    results = entry.run("sort", x, True, dim, descending, takes_all=True)
    return NUMPY["sort"](self, dim, descending, stable) if results is None else results[:2]


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {
        **{row: entry.of_row(row) for row in _ROWS},
        "cat": _cat,
        "stack": _stack,
        "full": _full,
        "full_like": _full_like,
        "index_select": entry.first_of("index_select", _index_select),
        "index_put": _index_put,
        "sort": _sort,
    }
