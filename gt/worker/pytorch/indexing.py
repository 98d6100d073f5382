"""Rows of the families view and index for torch."""

from __future__ import annotations

import torch
from torch import Tensor

from gt.worker.backend import InPlace, Kernel
from gt.worker.pytorch import shards
from gt.worker.pytorch.shards import ShardRange

_aten = torch.ops.aten


def _permute(self: Tensor, dims: tuple[int, ...]) -> Tensor:
    return self.t() if dims == (1, 0) else self.permute(dims)  # half the time, in every backward


def _slice(self: Tensor, dim: int, start: int, end: int, step: int) -> Tensor:
    if step == 1 and 0 <= start <= end <= self.shape[dim]:
        return self.narrow(dim, start, end - start)
    return _aten.slice.Tensor(self, dim, start, end, step)


def _as_strided(self: Tensor, size: list[int], stride: list[int], storage_offset: int) -> Tensor:
    whole = self.contiguous()
    return whole.as_strided(size, stride, whole.storage_offset() + storage_offset)


def _bitcast(self: Tensor, dtype: torch.dtype) -> Tensor:
    return self.clone(memory_format=torch.contiguous_format).view(dtype)


def _cat(tensors: list[Tensor], dim: int) -> Tensor:
    return torch.cat(tensors, dim)


def _pad(self: Tensor, pad: tuple[int, ...], value: float) -> Tensor:
    return torch.constant_pad_nd(self, pad, value)


def _embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int | None,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    padding = -1 if padding_idx is None else padding_idx
    if start is None:
        return torch.embedding(weight, indices, padding)
    return shards.embedding(weight, indices, ShardRange.of(start, total))


def _embedding_backward(
    grad: Tensor,
    indices: Tensor,
    num_weights: int,
    padding_idx: int | None,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    padding = -1 if padding_idx is None else padding_idx
    if start is not None:
        shard = ShardRange.of(start, total)
        return shards.embedding_backward(grad, indices, num_weights, padding, shard)
    # torch's CPU kernel silently omits indices out of range; the forward pass has failed on them.
    outside = (
        indices.device.type == "cpu"
        and indices.numel() > 0
        and not shards.within(indices, num_weights)
    )
    if outside:
        raise IndexError("index out of range in self")
    return _aten.embedding_dense_backward.default(grad, indices, num_weights, padding, False)


def _gather(
    self: Tensor, index: Tensor, dim: int, start: int | None = None, total: int | None = None
) -> Tensor:
    if start is None:
        return self.gather(dim, index)
    return shards.gather(self, index, dim, ShardRange.of(start, total))


def _index_select(
    self: Tensor, index: Tensor, dim: int, start: int | None = None, total: int | None = None
) -> Tensor:
    if start is None:
        return self.index_select(dim, index)
    return shards.index_select(self, index, dim, ShardRange.of(start, total))


def _scatter(
    self: Tensor,
    index: Tensor,
    src: Tensor | float,
    dim: int,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    if start is None:
        return self.scatter(dim, index, src)
    return shards.written(Tensor.scatter_, self, index, src, dim, ShardRange.of(start, total))


def _scatter_add(
    self: Tensor,
    index: Tensor,
    src: Tensor,
    dim: int,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    if start is None:
        return self.scatter_add(dim, index, src)
    return shards.written(Tensor.scatter_add_, self, index, src, dim, ShardRange.of(start, total))


def _index_add(
    self: Tensor,
    index: Tensor,
    source: Tensor,
    dim: int,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    if start is None:
        return self.index_add(dim, index, source)
    return shards.written(Tensor.index_add_, self, index, source, dim, ShardRange.of(start, total))


def _index(
    self: Tensor,
    indices: list[Tensor | None],
    along: int | None = None,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    if along is None or start is None:
        return _aten.index.Tensor(self, indices)
    return shards.index(self, indices, along, ShardRange.of(start, total))


def _index_put(
    self: Tensor,
    values: Tensor | float,
    indices: list[Tensor | None],
    accumulate: bool,
    along: int | None = None,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    values = _values(self, values)
    if along is None or start is None:
        return _aten.index_put.default(self, indices, values, accumulate)
    return shards.index_put(self, values, indices, accumulate, along, ShardRange.of(start, total))


def _values(self: Tensor, values: Tensor | float) -> Tensor:
    if isinstance(values, Tensor):
        return values
    return torch.full((), values, dtype=self.dtype, device=self.device)


def _sort(self: Tensor, dim: int, descending: bool, stable: bool) -> tuple[Tensor, Tensor]:
    return torch.sort(self, dim=dim, descending=descending, stable=stable)


def _index_put_over(
    self: Tensor,
    values: Tensor | float,
    indices: list[Tensor | None],
    accumulate: bool,
    along: int | None = None,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    if start is None:
        return _aten.index_put_.default(self, indices, _values(self, values), accumulate)
    return self.copy_(_index_put(self, values, indices, accumulate, along, start, total))


def _scatter_reduce(
    self: Tensor, index: Tensor, src: Tensor, dim: int, reduce: str, include_self: bool
) -> Tensor:
    return self.scatter_reduce(dim, index, src, reduce, include_self=include_self)


def _scatter_over(
    self: Tensor,
    index: Tensor,
    src: Tensor | float,
    dim: int,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    if start is None:
        return self.scatter_(dim, index, src)
    return self.copy_(_scatter(self, index, src, dim, start, total))


def _scatter_add_over(
    self: Tensor,
    index: Tensor,
    src: Tensor,
    dim: int,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    if start is None:
        return self.scatter_add_(dim, index, src)
    return self.copy_(_scatter_add(self, index, src, dim, start, total))


def _index_add_over(
    self: Tensor,
    index: Tensor,
    source: Tensor,
    dim: int,
    start: int | None = None,
    total: int | None = None,
) -> Tensor:
    if start is None:
        return self.index_add_(dim, index, source)
    return self.copy_(_index_add(self, index, source, dim, start, total))


def _copied(self: Tensor) -> Tensor:
    return self.clone(memory_format=torch.contiguous_format)


# torch's own out-of-place forms copy all of the memory behind a view, and leave the result at the
# view's place in it.
def _slice_scatter(self: Tensor, src: Tensor, dim: int, start: int, end: int, step: int) -> Tensor:
    return _slice_scatter_over(_copied(self), src, dim, start, end, step)


def _select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    return _select_scatter_over(_copied(self), src, dim, index)


def _diagonal_scatter(self: Tensor, src: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    return _diagonal_scatter_over(_copied(self), src, offset, dim1, dim2)


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
        "unfold": Tensor.unfold,
        "bitcast": _bitcast,
        "as_strided": _as_strided,
        "conj": torch.conj_physical,
        "slice_scatter": _slice_scatter,
        "select_scatter": _select_scatter,
        "diagonal_scatter": _diagonal_scatter,
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
        "scatter_reduce": _scatter_reduce,
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
    """Kernels that write over an operand: assignment to a part costs as much as the part."""
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
