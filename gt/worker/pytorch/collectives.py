"""Collectives as calls of a torch.distributed process group: values to send, and their results.

All memory is allocated before a member tells the others that it is ready: a member that has called
a group must not be left alone in it. No group is made here (see torch_groups) and nothing waits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.distributed import (
    AllreduceOptions,
    BroadcastOptions,
    ProcessGroup,
    ReduceOp,
    Work,
)

# Uneven shards are padded to the largest unless that multiplies their size by more than this.
PADDING_MAX = 2

_OPS = {
    "sum": ReduceOp.SUM,
    "max": ReduceOp.MAX,
    "min": ReduceOp.MIN,
    "prod": ReduceOp.PRODUCT,
}
# Reductions of bools, numbers of one bit: a sum is "any".
_BOOL_OPS = {
    "sum": ReduceOp.MAX,
    "max": ReduceOp.MAX,
    "min": ReduceOp.MIN,
    "prod": ReduceOp.MIN,
}
# Dtypes in which values are reduced that groups cannot reduce, or would round more than once.
_WIDER = {
    torch.bool: torch.uint8,
    torch.int16: torch.int32,
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
}
# For bools `add` and `mul` are "any" and "all".
_STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "prod": torch.mul,
}
# Floats whose bits are ordered as integers of their size, and the bits of infinity.
_BITS = {
    torch.float32: (torch.int32, 0x7F80_0000),
    torch.float64: (torch.int64, 0x7FF0_0000_0000_0000),
}

# A process group of torch: a backend with the methods of ProcessGroup.
Group = ProcessGroup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A collective at one member, ready to be called."""

    # Calls the group; the returned works are polled.
    launch: Callable[[Group], list[Work]]
    # Puts values that have arrived elsewhere into the result, after the call.
    finish: Callable[[], object]


def all_reduce(operand: Tensor, result: Tensor, *, reduce: str) -> Prepared:
    """The reduction of all members' operands into `result`, which may be the operand itself.

    Args:
        operand: Any shape, the same for all members.
        result: A tensor of the operand's shape and dtype.
        reduce: `sum`, `max`, `min` or `prod`.
    """
    if not operand.numel():
        return _NOTHING
    packing = _Packing(operand.dtype, reduce)
    if packing.is_plain and result.is_contiguous():
        if result is not operand:
            result.copy_(operand)
        return Prepared(launch=_reduces(result, packing.op), finish=_nothing)
    wire = packing.pack(operand)
    return Prepared(
        launch=_reduces(wire, packing.op),
        finish=lambda: result.copy_(packing.unpack(wire, result.shape)),
    )


def reduce_scatter(
    operand: Tensor, result: Tensor, *, me: int, reduce: str, dim: int, sizes: Sequence[int]
) -> Prepared:
    """Our shard of the reduction of all members' operands.

    Args:
        operand: Any shape, the same for all members.
        result: [..., sizes[me], ...]: as the operand, but with that size along `dim`.
        me: Our place among the members.
        reduce: `sum`, `max`, `min` or `prod`.
        dim: Dimension in which the reduction is cut.
        sizes: One size a member; they add up to the operand's.
    """
    if not operand.numel():
        return _NOTHING
    # Each shard goes to its owner and is reduced there: no member sends more, and the order is the
    # group's whatever the library does (Gloo itself would sum everything everywhere).
    sent = _cut(operand, sizes, dim)
    shape, count = list(sent[me].shape), len(sizes)
    launch, place = _exchange(sent, [sent[me].nbytes] * count)

    def finish() -> None:
        shards = [shard.view(operand.dtype).view(shape) for shard in place.chunk(count)]
        result.copy_(_reduced(shards, reduce))

    return Prepared(launch=launch, finish=finish if sizes[me] else _nothing)


def all_gather(
    operand: Tensor, result: Tensor, *, me: int, dim: int, sizes: Sequence[int]
) -> Prepared:
    """All members' operands, joined.

    Args:
        operand: A tensor of size `sizes[me]` along `dim`.
        result: A tensor of the sum of `sizes` along `dim`.
        me: Our place among the members.
        dim: Dimension in which the shards are joined.
        sizes: One size a member.
    """
    if not result.numel():
        return _NOTHING
    total, largest = sum(sizes), max(sizes)
    unit = result.nbytes // total
    own = _bytes(operand)
    # True if shards have no gaps in the result, so that they may arrive there.
    is_direct = result.is_contiguous() and math.prod(result.shape[:dim]) == 1
    if len(sizes) * largest > PADDING_MAX * total:
        place = _bytes(result) if is_direct else own.new_empty(result.nbytes)
        shards = _cut(place, [size * unit for size in sizes])
        shards[me].copy_(own)
        return Prepared(
            launch=lambda group: [
                work
                for root, shard in enumerate(shards)
                if shard.numel()
                for work in _broadcasts(shard, root)(group)
            ],
            finish=_nothing if is_direct else lambda: _join(result, dim, sizes, shards),
        )
    row_bytes = largest * unit
    is_even = total == len(sizes) * largest
    if not is_even:
        own = torch.nn.functional.pad(own, (0, row_bytes - own.numel()))
    is_direct = is_direct and is_even
    rows = _bytes(result) if is_direct else own.new_empty(len(sizes) * row_bytes)

    def finish() -> None:
        shards = [rows.narrow(0, k * row_bytes, size * unit) for k, size in enumerate(sizes)]
        _join(result, dim, sizes, shards)

    return Prepared(
        launch=lambda group: [group._allgather_base(rows, own)],  # noqa: SLF001
        finish=_nothing if is_direct else finish,
    )


def all_to_all(
    operand: Tensor,
    result: Tensor,
    *,
    me: int,
    from_dim: int,
    from_sizes: Sequence[int],
    to_dim: int,
    to_sizes: Sequence[int],
) -> Prepared:
    """Changes shards along `from_dim` into shards along `to_dim` of one whole value.

    Args:
        operand: The whole's shape, with `from_sizes[me]` along `from_dim`.
        result: The whole's shape, with `to_sizes[me]` along `to_dim`.
        me: Our place among the members.
        from_dim: Dimension in which the operands are cut.
        from_sizes: One size a member.
        to_dim: Dimension in which the results are cut; it may be `from_dim`.
        to_sizes: One size a member.
    """
    whole = list(operand.shape)
    whole[from_dim] = sum(from_sizes)
    if not math.prod(whole):
        return _NOTHING
    sent, arriving = list(to_sizes), list(from_sizes)
    if from_dim == to_dim:
        sent, arriving = _overlaps(from_sizes, me, to_sizes), _overlaps(to_sizes, me, from_sizes)
    unit = result.nbytes // max(1, sum(arriving))
    arriving_bytes = [size * unit for size in arriving]
    launch, place = _exchange(_cut(operand, sent, to_dim), arriving_bytes)
    return Prepared(
        launch=launch, finish=lambda: _join(result, from_dim, arriving, _cut(place, arriving_bytes))
    )


def broadcast(operand: Tensor | None, result: Tensor | None, *, root: int) -> Prepared:
    """The root's operand on every member.

    Args:
        operand: The root's value; None on the others.
        result: Memory for the value; None on a root that keeps nothing.
        root: The root's place among the members.
    """
    if operand is not None and result is not None:
        result.copy_(operand)
    place = operand if result is None else result
    assert place is not None, "a member with neither an operand nor a result"
    if not place.numel():
        return _NOTHING
    return Prepared(launch=_broadcasts(_bytes(place), root), finish=_nothing)


class _Packing:
    """Form in which values travel that are reduced: their own, or one that groups reduce exactly.

    Maxima and minima of floats are found among integers, because groups do not agree on the result
    for a NaN; here a NaN stays, wherever it comes from.
    """

    def __init__(self, dtype: torch.dtype, reduce: str) -> None:
        self._dtype = _WIDER.get(dtype, dtype)
        self._bits = _BITS.get(self._dtype) if reduce in {"max", "min"} else None
        self._nan_is_largest = reduce == "max"
        self.op = (_BOOL_OPS if dtype == torch.bool else _OPS)[reduce]
        self.is_plain = self._dtype == dtype and self._bits is None

    def pack(self, value: Tensor) -> Tensor:
        """The elements in their order, in new memory."""
        wire = torch.empty(value.numel(), dtype=self._dtype, device=value.device)
        wire.view(value.shape).copy_(value)
        if self._bits is None:
            return wire
        dtype, infinity = self._bits
        bits, limits = wire.view(dtype), torch.iinfo(dtype)
        is_nan = bits.bitwise_and(limits.max) > infinity
        self._swap(bits)
        return bits.masked_fill_(is_nan, limits.max if self._nan_is_largest else limits.min)

    def unpack(self, wire: Tensor, shape: Sequence[int]) -> Tensor:
        """The values of what `pack` has made, or of its reduction; `wire` is overwritten."""
        if self._bits is not None:
            self._swap(wire)
            wire = wire.view(self._dtype)
        return wire.view(shape)

    @staticmethod
    def _swap(bits: Tensor) -> None:
        """Converts floats' bits to integers in the floats' order, and back."""
        limits = torch.iinfo(bits.dtype)
        bits.bitwise_xor_((bits >> (limits.bits - 1)).bitwise_and_(limits.max))


def _reduces(wire: Tensor, op: ReduceOp.RedOpType) -> Callable[[Group], list[Work]]:
    options = AllreduceOptions()
    options.reduceOp = op
    flat = wire.view(-1)
    return lambda group: [group.allreduce([flat], options)]


def _broadcasts(place: Tensor, root: int) -> Callable[[Group], list[Work]]:
    options = BroadcastOptions()
    options.rootRank = root
    options.rootTensor = 0
    return lambda group: [group.broadcast([place], options)]


def _exchange(
    shards: Sequence[Tensor], arriving_bytes: list[int]
) -> tuple[Callable[[Group], list[Work]], Tensor]:
    """A call that sends shard k to member k, and the memory for the arriving shards."""
    sent = torch.cat([_bytes(shard) for shard in shards])
    lengths = [shard.nbytes for shard in shards]
    place = sent.new_empty(sum(arriving_bytes))
    return lambda group: [group.alltoall_base(place, sent, arriving_bytes, lengths)], place


def _reduced(shards: Sequence[Tensor], reduce: str) -> Tensor:
    """The reduction of the shards in their order, half precision in float32."""
    dtype = shards[0].dtype
    wide = torch.float32 if dtype in {torch.float16, torch.bfloat16} else dtype
    total = shards[0].to(wide)
    for shard in shards[1:]:
        total = _STEPS[reduce](total, shard.to(wide))
    return total


def _bytes(value: Tensor) -> Tensor:
    """The bytes of the elements, in new memory only if they have gaps."""
    return value.contiguous().view(-1).view(torch.uint8)


def _cut(value: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    """Consecutive shards along `dim`."""
    return [value.narrow(dim, sum(sizes[:place]), size) for place, size in enumerate(sizes)]


def _join(result: Tensor, dim: int, sizes: Sequence[int], shards: Sequence[Tensor]) -> None:
    """Copies shards, given as bytes, to their places along `dim`."""
    for place, shard in zip(_cut(result, sizes, dim), shards, strict=True):
        if shard.numel():
            place.copy_(shard.view(result.dtype).view(place.shape))


def _overlaps(cut: Sequence[int], mine: int, other: Sequence[int]) -> list[int]:
    """Elements of shard `mine` that lie in each shard of another cut of the same dimension."""
    start = sum(cut[:mine])
    end = start + cut[mine]
    ends = [sum(other[: place + 1]) for place in range(len(other))]
    return [
        max(0, min(last, end) - max(last - size, start))
        for last, size in zip(ends, other, strict=True)
    ]


def _nothing() -> None:
    """Does nothing: the result is in its place already."""


_NOTHING = Prepared(launch=lambda _: [], finish=_nothing)
