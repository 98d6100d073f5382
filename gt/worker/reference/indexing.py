"""Rows of the families view and index in numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gt.worker.backend import Kernel
from gt.worker.reference.values import (
    Array,
    Bfloat16,
    Places,
    cast,
    dtype_name,
    in_whole,
    marked,
    narrowed,
    promotion,
    storage,
    widened,
)
from gt.worker.reference.writes import scatter_reduce

Index = npt.NDArray[np.int64]
Number = int | float | bool


def _reshape(self: Array, size: tuple[int, ...]) -> Array:
    return marked(np.reshape(self, size), self)


def _permute(self: Array, dims: tuple[int, ...]) -> Array:
    return marked(np.transpose(self, dims), self)


def _expand(self: Array, size: tuple[int, ...]) -> Array:
    own_sizes = (1,) * (len(size) - self.ndim) + self.shape
    full = tuple(old if new == -1 else new for new, old in zip(size, own_sizes, strict=True))
    return marked(np.broadcast_to(self, full), self)


def _along(ndim: int, dim: int, part: int | slice) -> tuple[int | slice, ...]:
    """An index that takes `part` of one dimension and all of the others."""
    index: list[int | slice] = [slice(None)] * ndim
    index[dim] = part
    return tuple(index)


def _slice(self: Array, dim: int, start: int, end: int, step: int) -> Array:
    return marked(self[_along(self.ndim, dim, slice(start, end, step))], self)


def _select(self: Array, dim: int, index: int) -> Array:
    return marked(self[_along(self.ndim, dim, index)], self)


def _diagonal(self: Array, offset: int, dim1: int, dim2: int) -> Array:
    return marked(np.diagonal(self, offset, dim1, dim2), self)


def _unfold(self: Array, dimension: int, size: int, step: int) -> Array:
    if self.ndim == 0:
        return marked(np.reshape(self, (1,))[:size], self)
    windows = np.lib.stride_tricks.sliding_window_view(self, size, dimension)
    return marked(windows[_along(windows.ndim - 1, dimension, slice(None, None, step))], self)


def _written(self: Array, index: Places, src: Array | Number) -> Array:
    out = np.array(self)
    out[index] = cast(src, dtype_name(self))
    return marked(out, self)


def _slice_scatter(self: Array, src: Array, dim: int, start: int, end: int, step: int) -> Array:
    return _written(self, _along(self.ndim, dim, slice(start, end, step)), src)


def _select_scatter(self: Array, src: Array, dim: int, index: int) -> Array:
    return _written(self, _along(self.ndim, dim, index), src)


def _diagonal_scatter(self: Array, src: Array, offset: int, dim1: int, dim2: int) -> Array:
    places = np.diagonal(np.arange(self.size).reshape(self.shape), offset, dim1, dim2)
    out = np.array(self).reshape(-1)
    out[places] = cast(src, dtype_name(self))
    return marked(out.reshape(self.shape), self)


def _flip(self: Array, dims: tuple[int, ...]) -> Array:
    return marked(np.array(np.flip(self, dims)), self)


def _pad(self: Array, pad: tuple[int, ...], value: float) -> Array:
    pairs = [(0, 0)] * (self.ndim - len(pad) // 2)
    pairs += [(pad[place], pad[place + 1]) for place in range(len(pad) - 2, -1, -2)]
    # A negative pad crops.
    slices = tuple(
        slice(max(-low, 0), size - max(-high, 0))
        for (low, high), size in zip(pairs, self.shape, strict=True)
    )
    added = [(max(low, 0), max(high, 0)) for low, high in pairs]
    fill = np.asarray(narrowed(value, dtype_name(self)))
    return marked(np.pad(np.asarray(self)[slices], added, constant_values=fill), self)


def _repeat(self: Array, repeats: tuple[int, ...]) -> Array:
    return marked(np.array(np.tile(np.asarray(self), repeats)), self)


def _promoted(tensors: Sequence[Array]) -> tuple[list[Array], str]:
    name = promotion(tensors)
    return [np.asarray(cast(tensor, name)) for tensor in tensors], name


def _cat(tensors: list[Array], dim: int) -> Array:
    parts, name = _promoted(tensors)
    if len({part.ndim for part in parts}) > 1:  # PyTorch ignores empty vectors
        parts = [part for part in parts if part.shape != (0,)]
    # Row-major as PyTorch's result, whatever the order of the parts.
    return marked(np.ascontiguousarray(np.concatenate(parts, dim)), narrowed(0, name))


def _as_strided(self: Array, size: list[int], stride: list[int], storage_offset: int) -> Array:
    places = np.array(storage_offset)
    for length, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(length) * step
    return marked(np.reshape(self, -1)[places], self)


def _conj(self: Array) -> Array:
    return np.conjugate(self) if np.iscomplexobj(self) else self


def _bitcast(self: Array, dtype: str) -> Array:
    bits = np.array(self, order="C", subok=False).view(storage(dtype))
    return bits.view(Bfloat16) if dtype == "bfloat16" else bits


def _stack(tensors: list[Array], dim: int) -> Array:
    parts, name = _promoted(tensors)
    return marked(np.stack(parts, dim), narrowed(0, name))


def _first_outside(index: Index, low: int, high: int) -> int | None:
    """The first number that is not in low ... high - 1."""
    wrong = index[(index < low) | (index >= high)]
    return int(wrong.flat[0]) if wrong.size else None


def _check_along(index: Index, dim: int, of: Array) -> None:
    """Raises PyTorch's error for an `index` that names no place along `dim`."""
    size = of.shape[dim] if of.ndim else 1
    wrong = _first_outside(index, 0, size)
    if wrong is not None:
        place = dim % max(of.ndim, 1)
        raise RuntimeError(f"index {wrong} is out of bounds for dimension {place} with size {size}")


def _check_rows(index: Index, size: int) -> None:
    if _first_outside(index, 0, size) is not None:
        raise IndexError("index out of range in self")


def _read(self: Array, dim: int, start: int | None, total: int | None) -> Array:
    """The whole value with zeros outside the shard; without a shard range the value itself."""
    return self if start is None or total is None else in_whole(self, dim, start, total)


def _kept(whole: Array, like: Array, dim: int, start: int | None) -> Array:
    """The shard's part of the whole that was written."""
    if start is None or like.ndim == 0:
        return whole
    part = _along(like.ndim, dim, slice(start, start + like.shape[dim]))
    return marked(np.array(whole[part]), like)


def _embedding(
    weight: Array,
    indices: Index,
    padding_idx: int | None,
    start: int | None = None,
    total: int | None = None,
) -> Array:
    del padding_idx  # It concerns the gradient only.
    weight = _read(weight, 0, start, total)
    _check_rows(indices, weight.shape[0])
    return marked(weight[indices], weight)


def _embedding_backward(
    grad: Array,
    indices: Index,
    num_weights: int,
    padding_idx: int | None,
    start: int | None = None,
    total: int | None = None,
) -> Array:
    wide = widened(grad)
    out = np.zeros((total or num_weights, wide.shape[-1]), wide.dtype)
    is_counted = indices != (-1 if padding_idx is None else padding_idx)
    np.add.at(out, indices[is_counted], wide[is_counted])
    first = start or 0
    return narrowed(out[first : first + num_weights], dtype_name(grad))


def _grid(index: Index, dim: int) -> tuple[Index, ...]:
    """For each element of `index`, the position in the array that it names along `dim`."""
    if index.ndim == 0:
        return ()
    grid: list[Index] = list(np.indices(index.shape))
    grid[dim] = index
    return tuple(grid)


def _corner(src: Array, index: Index) -> Array:
    """The corner of `src` that has the index's shape."""
    return src[tuple(slice(size) for size in index.shape)]


def _gather(
    self: Array, index: Index, dim: int, start: int | None = None, total: int | None = None
) -> Array:
    self = _read(self, dim, start, total)
    _check_along(index, dim, self)
    if self.ndim == 0:
        return marked(np.full(index.shape, self), self)
    return marked(np.array(self[_grid(index, dim)]), self)


def _scatter(
    self: Array,
    index: Index,
    src: Array | Number,
    dim: int,
    start: int | None = None,
    total: int | None = None,
) -> Array:
    self, shard = _read(self, dim, start, total), self
    _check_along(index, dim, self)
    part = _corner(src, index) if isinstance(src, np.ndarray) else src
    return _kept(_written(self, _grid(index, dim), part), shard, dim, start)


def _added(self: Array, index: Places, src: Array) -> Array:
    out = np.array(widened(self))
    np.add.at(out, index, widened(src).astype(out.dtype))
    return narrowed(out, dtype_name(self))


def _scatter_add(
    self: Array,
    index: Index,
    src: Array,
    dim: int,
    start: int | None = None,
    total: int | None = None,
) -> Array:
    self, shard = _read(self, dim, start, total), self
    _check_along(index, dim, self)
    return _kept(_added(self, _grid(index, dim), _corner(src, index)), shard, dim, start)


def _index_select(
    self: Array, index: Index, dim: int, start: int | None = None, total: int | None = None
) -> Array:
    self = _read(self, dim, start, total)
    size = self.shape[dim] if self.ndim else 1
    wrong = _first_outside(index, 0, size)
    if wrong is not None and self.ndim > 1 and dim % self.ndim:  # PyTorch uses another kernel here
        raise RuntimeError(f"INDICES element is out of DATA bounds, id={wrong} axis_dim={size}")
    _check_rows(index, size)
    if self.ndim == 0:
        return marked(np.array(self), self)
    return marked(np.take(np.asarray(self), index.reshape(-1), axis=dim), self)


def _index_add(
    self: Array,
    index: Index,
    source: Array,
    dim: int,
    start: int | None = None,
    total: int | None = None,
) -> Array:
    if self.ndim == 0:
        return _index_add(self.reshape(1), index, source.reshape(-1), 0, None, None).reshape(())
    self, shard = _read(self, dim, start, total), self
    if self.ndim == 1:
        _check_rows(index, self.shape[0])
    _check_along(index, dim, self)
    place: list[object] = [slice(None)] * self.ndim
    place[dim] = index.reshape(-1)
    return _kept(_added(self, tuple(place), source), shard, dim, start)


def _places(self: Array, indices: list[Array | None]) -> Places:
    """An index for numpy, checked to name places of `self`."""
    dims = [dim for dim, index in enumerate(indices) if index is not None]
    for place, dim in enumerate(dims):  # PyTorch's message counts only the indexed dimensions
        size, index = self.shape[dim], indices[dim]
        wrong = None if index is None else _first_outside(index, -size, size)
        if wrong is not None:
            text = f"index {wrong} is out of bounds for dimension {place} with size {size}"
            raise IndexError(text)
    return tuple(slice(None) if index is None else index for index in indices)


def _index(
    self: Array,
    indices: list[Array | None],
    along: int | None = None,
    start: int | None = None,
    total: int | None = None,
) -> Array:
    self = self if along is None else _read(self, along, start, total)
    return marked(np.array(self[_places(self, indices)]), self)


def _index_put(
    self: Array,
    values: Array | Number,
    indices: list[Array | None],
    accumulate: bool,
    along: int | None = None,
    start: int | None = None,
    total: int | None = None,
) -> Array:
    dim = along or 0
    self, shard = _read(self, dim, start, total), self
    if accumulate:
        written = _added(self, _places(self, indices), np.asarray(cast(values, dtype_name(self))))
    else:
        written = _written(self, _places(self, indices), values)
    return _kept(written, shard, dim, start)


def _tril(self: Array, diagonal: int) -> Array:
    return marked(np.tril(np.asarray(self), diagonal), self)


def _triu(self: Array, diagonal: int) -> Array:
    return marked(np.triu(np.asarray(self), diagonal), self)


def _sort(self: Array, dim: int, descending: bool, stable: bool) -> tuple[Array, Array]:
    del stable  # It always is.
    if self.ndim == 0:
        return marked(np.array(self), self), np.zeros((), np.int64)
    wide = widened(self)
    if descending:
        backwards = np.flip(np.argsort(np.flip(wide, dim), axis=dim, kind="stable"), dim)
        order = wide.shape[dim] - 1 - backwards
    else:
        order = np.argsort(wide, axis=dim, kind="stable")
    return marked(np.take_along_axis(np.asarray(self), order, dim), self), order


def _topk(self: Array, k: int, dim: int, largest: bool, sorted: bool) -> tuple[Array, Array]:
    values, order = _sort(self, dim, largest, sorted)
    if self.ndim == 0:
        return values, order
    part = _along(self.ndim, dim, slice(k))
    return marked(np.array(values[part]), self), np.array(order[part])


def allocate(size: tuple[int, ...], name: object) -> Array:
    """An array whose elements are not yet set."""
    out = np.empty(size, storage(str(name)))
    return marked(out, narrowed(0, str(name)))


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {
        "reshape": _reshape,
        "permute": _permute,
        "expand": _expand,
        "slice": _slice,
        "select": _select,
        "diagonal": _diagonal,
        "unfold": _unfold,
        "bitcast": _bitcast,
        "as_strided": _as_strided,
        "conj": _conj,
        "slice_scatter": _slice_scatter,
        "select_scatter": _select_scatter,
        "diagonal_scatter": _diagonal_scatter,
        "flip": _flip,
        "pad": _pad,
        "repeat": _repeat,
        "cat": _cat,
        "stack": _stack,
        "embedding": _embedding,
        "embedding_backward": _embedding_backward,
        "gather": _gather,
        "scatter": _scatter,
        "scatter_add": _scatter_add,
        "scatter_reduce": scatter_reduce,
        "index_select": _index_select,
        "index_add": _index_add,
        "index": _index,
        "index_put": _index_put,
        "tril": _tril,
        "triu": _triu,
        "sort": _sort,
        "topk": _topk,
    }
