"""Look-ups in a shard of a dimension, for torch; elements of other shards count as nothing.

Indices are those of the whole dimension. The shards' reads add up to the whole's, their writes
together are the whole's, and an index outside of the whole fails as it does in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

_aten = torch.ops.aten
Write = Callable[..., Tensor]


class ShardRange(NamedTuple):
    """Start of a shard in a dimension of size `total`."""

    start: int
    total: int

    @classmethod
    def of(cls, start: int, total: int | None) -> ShardRange:
        """The range from an instruction's two attributes."""
        return cls(start, start if total is None else total)


def within(indices: Tensor, size: int) -> bool:
    """True if all are in [0, size); waits for the device.

    A program that is compiled gets the check as one of its instructions, which fails when it runs.
    """
    if torch.compiler.is_exporting():
        fits = ((indices >= 0) & (indices < size)).all()
        torch._assert_async(fits, "index out of range in self")  # noqa: SLF001 - without a branch
        return True
    least, largest = indices.aminmax()
    return bool(least >= 0 and largest < size)


def check(indices: Tensor, total: int, whole: Callable[[], object]) -> None:
    """Raises the error of `whole`, the look-up in the whole dimension, for an index
    outside of it.
    """
    if indices.numel() == 0:
        return
    if indices.device.type != "cpu":
        torch._assert_async(((indices >= 0) & (indices < total)).all())  # noqa: SLF001
    elif not within(indices, total):
        whole()


def _nothing(like: Tensor, dim: int, total: int) -> Tensor:
    """Zeros in the whole's shape, in the memory of one element."""
    shape = list(like.shape)
    if shape:
        shape[dim] = total
    return torch.zeros((), dtype=like.dtype, device=like.device).expand(shape)


def place(indices: Tensor, start: int, size: int) -> tuple[Tensor, Tensor]:
    """Indices in the shard, and a mask of those outside of it, which are 0."""
    local = indices - start
    outside = (local < 0) | (local >= size)
    return local.masked_fill_(outside, 0), outside


def embedding(weight: Tensor, indices: Tensor, shard: ShardRange) -> Tensor:
    """Rows of the shard, zeros for the others."""
    check(indices, shard.total, lambda: torch.embedding(_nothing(weight, 0, shard.total), indices))
    if not weight.shape[0]:
        return weight.new_zeros((*indices.shape, weight.shape[1]))
    local, outside = place(indices, shard.start, weight.shape[0])
    return torch.embedding(weight, local).masked_fill_(outside.unsqueeze(-1), 0)


def embedding_backward(
    grad: Tensor, indices: Tensor, count: int, padding: int, shard: ShardRange
) -> Tensor:
    """The gradient of the shard of `count` rows."""
    if indices.device.type == "cpu" and indices.numel() and not within(indices, shard.total):
        raise IndexError("index out of range in self")
    local = indices - shard.start
    # One extra row, which is not filled, takes the indices of other shards.
    local = local.masked_fill_((local < 0) | (local >= count) | (indices == padding), count)
    out = _aten.embedding_dense_backward.default(grad, local, count + 1, count, False)
    return out.narrow(0, 0, count).clone()  # in memory of its own size


def gather(self: Tensor, index: Tensor, dim: int, shard: ShardRange) -> Tensor:
    """Values of the shard, zeros for the others."""
    check(index, shard.total, lambda: _nothing(self, dim, shard.total).gather(dim, index))
    if not self.numel():
        return self.new_zeros(index.shape)
    local, outside = place(index, shard.start, self.shape[dim] if self.dim() else 1)
    return self.gather(dim, local).masked_fill_(outside, 0)


def index_select(self: Tensor, index: Tensor, dim: int, shard: ShardRange) -> Tensor:
    """Slices of the shard, zeros for the others."""
    check(index, shard.total, lambda: _nothing(self, dim, shard.total).index_select(dim, index))
    shape = list(self.shape)
    shape[dim] = index.numel()
    if not self.shape[dim]:
        return self.new_zeros(shape)
    local, outside = place(index.reshape(-1), shard.start, self.shape[dim])
    beside = [1] * self.dim()
    beside[dim] = -1
    return self.index_select(dim, local).masked_fill_(outside.reshape(beside), 0)


def written(
    write: Write, self: Tensor, index: Tensor, src: Tensor | float, dim: int, shard: ShardRange
) -> Tensor:
    """The shard after the writes that fall into it by `write`, an in-place method of torch."""
    check(
        index,
        shard.total,
        lambda: write(_nothing(self, dim, shard.total).contiguous(), dim, index, src),
    )
    size = self.shape[dim]
    local = index - shard.start
    local = local.masked_fill_((local < 0) | (local >= size), size)
    return write(_with_room(self, dim), dim, local, src).narrow(dim, 0, size).clone()


def _whole(like: Tensor, along: int, shard: ShardRange) -> Tensor:
    return _nothing(like, along, shard.total)


def _from_front(index: Tensor, total: int) -> Tensor:
    """The index with negative entries counted from the front."""
    return torch.where(index < 0, index + total, index)


def index(self: Tensor, indices: list[Tensor | None], along: int, shard: ShardRange) -> Tensor:
    """The indexed elements of the shard of dimension `along`, zeros for those of other shards."""
    along_index = indices[along]
    assert along_index is not None
    whole = _whole(self, along, shard)
    along_index = _from_front(along_index, shard.total)
    check(along_index, shard.total, lambda: _aten.index.Tensor(whole, indices))
    size = self.shape[along]
    if not size:
        return _aten.index.Tensor(whole, indices)
    local, outside = place(along_index, shard.start, size)
    out = _aten.index.Tensor(self, [*indices[:along], local, *indices[along + 1 :]])
    picked = [dim for dim, one in enumerate(indices) if one is not None]
    adjacent = picked[-1] - picked[0] + 1 == len(picked)
    after = self.dim() - 1 - picked[-1] if adjacent else self.dim() - len(picked)
    return out.masked_fill_(outside.reshape(outside.shape + (1,) * after), 0)


def index_put(
    self: Tensor,
    values: Tensor,
    indices: list[Tensor | None],
    accumulate: bool,
    along: int,
    shard: ShardRange,
) -> Tensor:
    """The shard of dimension `along`, with the values that fall into it written or added."""
    along_index = indices[along]
    assert along_index is not None
    along_index = _from_front(along_index, shard.total)
    check(along_index, shard.total, lambda: _aten.index.Tensor(_whole(self, along, shard), indices))
    size = self.shape[along]
    local = along_index - shard.start
    local = local.masked_fill_((local < 0) | (local >= size), size)
    room = _with_room(self, along)
    _aten.index_put_.default(
        room, [*indices[:along], local, *indices[along + 1 :]], values, accumulate
    )
    return room.narrow(along, 0, size).clone()


def _with_room(self: Tensor, dim: int) -> Tensor:
    """The shard with one extra slice, for writes into other shards."""
    shape = list(self.shape)
    shape[dim] += 1
    room = self.new_zeros(shape)
    room.narrow(dim, 0, self.shape[dim]).copy_(self)
    return room


def targets(target: Tensor, ignore_index: int, classes: int, shard: ShardRange) -> Tensor:
    """Targets counted from the shard's first class; -1 for ignored ones and those of
    other shards.
    """
    target = target.to(torch.int64)
    ignored = target == ignore_index
    places = target.masked_fill(ignored, 0)
    if places.numel():
        one = torch.zeros((), device=target.device)
        check(
            places,
            shard.total,
            lambda: _aten.nll_loss_forward.default(
                one.expand(places.numel(), shard.total), places.reshape(-1), None, 0, -100
            ),
        )
    local = target - shard.start
    return local.masked_fill_(ignored | (local < 0) | (local >= classes), -1)
