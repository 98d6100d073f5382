"""Rows of the families view and index of the native backend.

Quick: float32, contiguous where an index of int64 reads or writes it, and not cut along the
dimension of the index. `index_add`: along the first one. `index_put`: accumulating, by an index of
the first dimension alone. `scatter`: of a tensor. `sort`: float32, int32 and int64 of any strides,
along the last dimension.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gt import _kernels
from gt.worker.backend import Kernel
from gt.worker.native import entry
from gt.worker.native.values import FLOAT32, INT64, copied, is_float32, is_rows, rows
from gt.worker.reference.kernels import NUMPY
from gt.worker.reference.values import Array


def _embedding(
    weight: Array,
    indices: Array,
    padding_idx: int | None,
    start: int | None = None,
    total: int | None = None,
) -> object:
    taken = None if start is not None else _taken(weight, indices)
    if taken is None:
        return NUMPY["embedding"](weight, indices, padding_idx, start, total)
    return taken


def _taken(table: Array, index: Array) -> Array | None:
    """Rows of a table; None where there is no kernel for it, or an index that is no row."""
    if not is_rows(table) or not table.size or index.dtype is not INT64:
        return None
    out = np.empty((*index.shape, *table.shape[1:]), FLOAT32)
    return out if _kernels.take_rows(table, np.ascontiguousarray(index), out) else None


def _are_rows(indices: Array, count: int) -> bool:
    """True if all indices name a row; if not, the numpy function says which does not."""
    if indices.size == 0 or indices.dtype is not INT64:
        return False
    return bool(indices.min() >= 0 and indices.max() < count)


def _embedding_backward(
    grad: Array,
    indices: Array,
    num_weights: int,
    padding_idx: int | None,
    start: int | None = None,
    total: int | None = None,
) -> object:
    if start is not None or not is_float32(grad) or not _are_rows(indices, num_weights):
        return NUMPY["embedding_backward"](grad, indices, num_weights, padding_idx, start, total)
    out = np.zeros((num_weights, grad.shape[-1]), FLOAT32)
    if padding_idx is not None:
        indices = np.where(indices == padding_idx, -1, indices)
    _kernels.add_rows(out, np.ascontiguousarray(indices), rows(grad))
    return out


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
    is_plain = is_rows(self) and self.ndim > 0 and index.ndim == 1 and start is None
    if is_plain and dim % self.ndim == 0:
        taken = _taken(self, index)
        if taken is not None:
            return taken
    elif is_plain and _are_rows(index, self.shape[dim]):
        return np.take(self, index, axis=dim)
    return NUMPY["index_select"](self, index, dim, start, total)


def _are_along(self: Array, index: Array, dim: int) -> bool:
    """True if kernels take an index along a dimension."""
    if not is_rows(self) or index.dtype is not INT64 or not self.ndim == index.ndim > 0:
        return False
    pairs = zip(index.shape, self.shape, strict=True)
    return all(size <= whole for at, (size, whole) in enumerate(pairs) if at != dim % self.ndim)


def _gather(
    self: Array, index: Array, dim: int, start: int | None = None, total: int | None = None
) -> object:
    if start is None and _are_along(self, index, dim):
        out = np.empty(index.shape, FLOAT32)
        if _kernels.gather(self, np.ascontiguousarray(index), dim % self.ndim, out):
            return out
    return NUMPY["gather"](self, index, dim, start, total)


def _scattering(name: str, function: Callable[[Array, Array, int, Array], bool]) -> Kernel:
    def kernel(
        self: Array,
        index: Array,
        src: Array,
        dim: int,
        start: int | None = None,
        total: int | None = None,
    ) -> object:
        is_plain = start is None and is_float32(src) and _are_along(self, index, dim)
        if is_plain and src.ndim == index.ndim:
            part = src[tuple(map(slice, index.shape))]
            if part.shape == index.shape:
                out = self.copy()
                if function(out, np.ascontiguousarray(index), dim % self.ndim, rows(part)):
                    return out
        return NUMPY[name](self, index, src, dim, start, total)

    return kernel


def _adds_rows(out: Array, index: object, source: object) -> bool:
    """True if a kernel adds rows of `source` to those rows of `out` that `index` names."""
    return (
        is_rows(out)
        and out.ndim > 0
        and out.size > 0
        and type(index) is np.ndarray
        and is_float32(source)
        and source.shape == index.shape + out.shape[1:]
        and _are_rows(index, out.shape[0])
    )


def _with_rows(self: Array, index: Array, source: Array) -> Array:
    out = self.copy()
    flat = np.ascontiguousarray(index).reshape(-1)
    _kernels.add_rows(out.reshape(len(out), -1), flat, rows(source).reshape(flat.size, -1))
    return out


def _index_add(
    self: Array,
    index: Array,
    source: Array,
    dim: int,
    start: int | None = None,
    total: int | None = None,
) -> object:
    if dim != 0 or start is not None or index.ndim != 1 or not _adds_rows(self, index, source):
        return NUMPY["index_add"](self, index, source, dim, start, total)
    return _with_rows(self, index, source)


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
    others = any(one is not None for one in indices[1:])
    if first is None or others or not _adds_rows(self, first, values):
        return NUMPY["index_put"](self, values, indices, accumulate, along, start, total)
    return _with_rows(self, first, values)


def _sort(self: Array, dim: int, descending: bool, stable: bool) -> object:
    x = self if self.flags.c_contiguous else copied(self)
    results = entry.run("sort", x, True, dim, descending, takes_all=True)
    return NUMPY["sort"](self, dim, descending, stable) if results is None else results[:2]


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {
        "embedding": _embedding,
        "embedding_backward": _embedding_backward,
        "cat": _cat,
        "stack": _stack,
        "full": _full,
        "full_like": _full_like,
        "index_select": _index_select,
        "index_add": _index_add,
        "index_put": _index_put,
        "gather": _gather,
        "sort": _sort,
        "scatter": _scattering("scatter", _kernels.scatter),
        "scatter_add": _scattering("scatter_add", _kernels.scatter_add),
    }
