"""Rows of the families view and index of the native backend."""

from __future__ import annotations

import numpy as np

from gt import _kernels
from gt.worker.backend import Kernel
from gt.worker.native_values import FLOAT32, INT64, is_float32, is_rows, rows
from gt.worker.reference import NUMPY
from gt.worker.reference_values import Array


def _embedding(
    weight: Array,
    indices: Array,
    padding_idx: int | None,
    start: int | None = None,
    total: int | None = None,
) -> object:
    if start is not None or not is_float32(weight) or not _are_rows(indices, weight.shape[0]):
        return NUMPY["embedding"](weight, indices, padding_idx, start, total)
    return weight[indices]


def _are_rows(indices: Array, count: int) -> bool:
    """Whether all name a row; who is told otherwise says which does not."""
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
    if not is_plain or not _are_rows(index, self.shape[dim]):
        return NUMPY["index_select"](self, index, dim, start, total)
    return np.take(self, index, axis=dim)


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
    }
