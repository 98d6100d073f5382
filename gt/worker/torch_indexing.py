"""Rows of the families view and index for torch."""

from __future__ import annotations

import torch
from torch import Tensor

from gt.worker.backend import InPlace, Kernel

_aten = torch.ops.aten


def _permute(self: Tensor, dims: tuple[int, ...]) -> Tensor:
    return self.t() if dims == (1, 0) else self.permute(dims)  # half the time, in every backward


def _slice(self: Tensor, dim: int, start: int, end: int, step: int) -> Tensor:
    if step == 1 and 0 <= start <= end <= self.shape[dim]:
        return self.narrow(dim, start, end - start)
    return _aten.slice.Tensor(self, dim, start, end, step)


def _cat(tensors: list[Tensor], dim: int) -> Tensor:
    return torch.cat(tensors, dim)


def _pad(self: Tensor, pad: tuple[int, ...], value: float) -> Tensor:
    return torch.constant_pad_nd(self, pad, value)


def _embedding(weight: Tensor, indices: Tensor, padding_idx: int | None) -> Tensor:
    return torch.embedding(weight, indices, -1 if padding_idx is None else padding_idx)


def _within(indices: Tensor, size: int) -> bool:
    least, largest = indices.aminmax()
    return bool(least >= 0 and largest < size)


def _embedding_backward(
    grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int | None
) -> Tensor:
    padding = -1 if padding_idx is None else padding_idx
    # torch's CPU kernel leaves out what is out of range, in silence; the forward pass has failed.
    outside = (
        indices.device.type == "cpu" and indices.numel() > 0 and not _within(indices, num_weights)
    )
    if outside:
        raise IndexError("index out of range in self")
    return _aten.embedding_dense_backward.default(grad, indices, num_weights, padding, False)


def _gather(self: Tensor, index: Tensor, dim: int) -> Tensor:
    return self.gather(dim, index)


def _scatter(self: Tensor, index: Tensor, src: Tensor | float, dim: int) -> Tensor:
    return self.scatter(dim, index, src)


def _scatter_add(self: Tensor, index: Tensor, src: Tensor, dim: int) -> Tensor:
    return self.scatter_add(dim, index, src)


def _index_select(self: Tensor, index: Tensor, dim: int) -> Tensor:
    return self.index_select(dim, index)


def _index_add(self: Tensor, index: Tensor, source: Tensor, dim: int) -> Tensor:
    return self.index_add(dim, index, source)


def _index(self: Tensor, indices: list[Tensor | None]) -> Tensor:
    return _aten.index.Tensor(self, indices)


def _index_put(
    self: Tensor, values: Tensor | float, indices: list[Tensor | None], accumulate: bool
) -> Tensor:
    return _aten.index_put.default(self, indices, _values(self, values), accumulate)


def _values(self: Tensor, values: Tensor | float) -> Tensor:
    if isinstance(values, Tensor):
        return values
    return torch.full((), values, dtype=self.dtype, device=self.device)


def _sort(self: Tensor, dim: int, descending: bool, stable: bool) -> tuple[Tensor, Tensor]:
    return torch.sort(self, dim=dim, descending=descending, stable=stable)


def _index_put_over(
    self: Tensor, values: Tensor | float, indices: list[Tensor | None], accumulate: bool
) -> Tensor:
    return _aten.index_put_.default(self, indices, _values(self, values), accumulate)


def _scatter_over(self: Tensor, index: Tensor, src: Tensor | float, dim: int) -> Tensor:
    return self.scatter_(dim, index, src)


def _scatter_add_over(self: Tensor, index: Tensor, src: Tensor, dim: int) -> Tensor:
    return self.scatter_add_(dim, index, src)


def _index_add_over(self: Tensor, index: Tensor, source: Tensor, dim: int) -> Tensor:
    return self.index_add_(dim, index, source)


def _slice_scatter_over(
    self: Tensor, src: Tensor, dim: int, start: int, end: int, step: int
) -> Tensor:
    _slice(self, dim, start, end, step).copy_(src)
    return self


def _select_scatter_over(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    self.select(dim, index).copy_(src)
    return self


def _diagonal_scatter_over(self: Tensor, src: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    self.diagonal(offset, dim1, dim2).copy_(src)
    return self


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {
        "reshape": Tensor.reshape,
        "permute": _permute,
        "expand": Tensor.expand,
        "slice": _slice,
        "select": Tensor.select,
        "diagonal": Tensor.diagonal,
        "slice_scatter": Tensor.slice_scatter,
        "select_scatter": Tensor.select_scatter,
        "diagonal_scatter": Tensor.diagonal_scatter,
        "flip": Tensor.flip,
        "pad": _pad,
        "repeat": Tensor.repeat,
        "cat": _cat,
        "stack": torch.stack,
        "embedding": _embedding,
        "embedding_backward": _embedding_backward,
        "gather": _gather,
        "scatter": _scatter,
        "scatter_add": _scatter_add,
        "index_select": _index_select,
        "index_add": _index_add,
        "index": _index,
        "index_put": _index_put,
        "tril": Tensor.tril,
        "triu": Tensor.triu,
        "sort": _sort,
        "topk": Tensor.topk,
    }


def in_place() -> dict[str, list[InPlace]]:
    """Kernels that write over an operand: assignment to a part costs the part, not the whole."""
    rows: dict[str, Kernel] = {
        "slice_scatter": _slice_scatter_over,
        "select_scatter": _select_scatter_over,
        "diagonal_scatter": _diagonal_scatter_over,
        "index_put": _index_put_over,
        "scatter": _scatter_over,
        "scatter_add": _scatter_add_over,
        "index_add": _index_add_over,
    }
    return {name: [(0b1, kernel, False)] for name, kernel in rows.items()}
