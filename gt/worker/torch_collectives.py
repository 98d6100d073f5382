"""Collectives as calls of a torch.distributed process group: what is sent, and what is made of it.

Everything that can fail for want of memory is done before a member tells the others that it is
ready: whoever has called a group must not be left alone in it. Here no group is made (see
torch_groups) and nothing waits.
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

# Uneven shards are padded to the largest unless that makes them more than so many times as much.
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
# Floats whose bits are ordered as integers of the same size; then the bits of infinity.
_BITS = {
    torch.float32: (torch.int32, 0x7F80_0000),
    torch.float64: (torch.int64, 0x7FF0_0000_0000_0000),
}

# A process group as torch gives it: a backend, whose methods are those of ProcessGroup.
Group = ProcessGroup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A collective at one member, ready to be called."""

    # Calls the group; what it returns is polled.
    launch: Callable[[Group], list[Work]]
    # Afterwards: puts into the result what has come elsewhere.
    finish: Callable[[], object]


def all_reduce(operand: Tensor, result: Tensor, *, reduce: str) -> Prepared:
    """The reduction of all members' operands into `result`, which may be the operand itself.

    Args:
        operand: Any shape, the same for all members.
        result: Of the operand's shape and dtype.
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
        result: As the operand, but with `sizes[me]` along `dim`.
        me: Our place among the members.
        reduce: `sum`, `max`, `min` or `prod`.
        dim: Along which the reduction is cut.
        sizes: One size a member; they add up to the operand's.
    """
    if not operand.numel():
        return _NOTHING
    # Shards to whom they are for, and reduced there: no member has more to send, and the order is
    # the group's whatever the library does (Gloo itself would sum everything everywhere).
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
    """All members' operands one after the other.

    Args:
        operand: With `sizes[me]` along `dim`.
        result: With the sum of `sizes` along `dim`.
        me: Our place among the members.
        dim: Along which the shards are joined.
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
    """From shards along `from_dim` to shards along `to_dim` of the same whole value.

    Args:
        operand: With `from_sizes[me]` along `from_dim` of the whole.
        result: With `to_sizes[me]` along `to_dim` of the whole.
        me: Our place among the members.
        from_dim: Along which the operands are cut.
        from_sizes: One size a member.
        to_dim: Along which the results are cut; may be the same.
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
    """The root's operand, everywhere.

    Args:
        operand: The root's; None at the others.
        result: Where it is to be; None at a root that keeps nothing.
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
        """Elements in their order, in new memory."""
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
        """From floats' bits to integers in the floats' order, and back."""
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
    """Shard k to member k; where its bytes come, as many from each as `arriving_bytes` says."""
    sent = torch.cat([_bytes(shard) for shard in shards])
    lengths = [shard.nbytes for shard in shards]
    place = sent.new_empty(sum(arriving_bytes))
    return lambda group: [group.alltoall_base(place, sent, arriving_bytes, lengths)], place


def _reduced(shards: Sequence[Tensor], reduce: str) -> Tensor:
    """In their order, halves in single."""
    dtype = shards[0].dtype
    wide = torch.float32 if dtype in {torch.float16, torch.bfloat16} else dtype
    total = shards[0].to(wide)
    for shard in shards[1:]:
        total = _STEPS[reduce](total, shard.to(wide))
    return total


def _bytes(value: Tensor) -> Tensor:
    """Its elements' bytes, in new memory only if they have gaps."""
    return value.contiguous().view(-1).view(torch.uint8)


def _cut(value: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    """Consecutive shards along `dim`."""
    return [value.narrow(dim, sum(sizes[:place]), size) for place, size in enumerate(sizes)]


def _join(result: Tensor, dim: int, sizes: Sequence[int], shards: Sequence[Tensor]) -> None:
    """Shards as bytes, to their places along `dim`."""
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
    """The result is where it belongs."""


_NOTHING = Prepared(launch=lambda _: [], finish=_nothing)
