"""Collectives between GPUs of a host by GT's own kernels: the checks, and the launches.

Flags, slots and waits follow csrc/cuda/collectives.h and exchange.h. `gt.worker.device_kernels`
decides which members share memory, and when a kernel is launched.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from gt.worker.cuda.device import CudaDevice

if TYPE_CHECKING:
    from gt.worker.device_kernels import Launch

RANKS_MAX = 8
SUMMED = (torch.float32, torch.bfloat16, torch.float16)
# Dtype by size in bytes with which kernels move elements without computing.
_MOVED = {2: torch.bfloat16, 4: torch.float32, 8: torch.int64}
# Alignment in bytes of the parts of a shared region.
_ALIGNED = 256
_OneMessage = tuple[int, int, int] | None


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes that all ranks of a group agree on.

    Args:
        slot_bytes: Bytes of staging: the limit of an all-reduce in one shot, an all-gather or a
            broadcast; half of it for two shots, and for a reduce-scatter the limit with all parts.
        box_bytes: Bytes of a chunk of a message.
        blocks: Number of blocks in each rank's launch, which must be resident at once.
        one_shot_bytes: Largest operand of an all-reduce in which every rank reads everything.
        timeout_seconds: Time for which a rank is waited for.
    """

    slot_bytes: int = 16 << 20
    box_bytes: int = 1 << 20
    blocks: int = 32
    one_shot_bytes: int = 256 << 10
    timeout_seconds: float = 30.0


# Sizes for a worker. Larger values take so long that copies, which move each byte once and without
# staging, lose nothing by their slower start. No messages.
OF_WORKER = Sizes(slot_bytes=8 << 20, box_bytes=_ALIGNED)


@dataclasses.dataclass(frozen=True)
class _Region:
    """Addresses in the memory that one rank shares."""

    staging: int
    boxes: int
    flags: int
    arrived: int
    taken: int


def layout(ranks: int, sizes: Sizes) -> tuple[list[int], int]:
    """Starts of the parts of a region, and its size, both in bytes."""
    words = 4 * sizes.blocks * ranks
    parts = [2 * sizes.slot_bytes, 2 * ranks * sizes.box_bytes, *[words] * 3]
    begins, total = [], 0
    for size in parts:
        begins.append(total)
        total += (size + _ALIGNED - 1) // _ALIGNED * _ALIGNED
    return begins, total


class CudaGroup:
    """Ranks that share their memory. All of them make the same calls in the same order.

    Args:
        on: The device of this process' ranks.
        own: Ranks of this process, side by side; several only for tests on one device.
        regions: Address of each rank's region, up to 8: `layout` bytes, of zeros.
        errors: Error words of this process' ranks: two of int32, of zeros.
        sizes: Sizes, equal on all ranks.
        error_base: An error is reported as error_base + 1 + the rank that did not come.
    """

    def __init__(
        self,
        on: CudaDevice,
        own: range,
        regions: Sequence[int],
        errors: Sequence[Tensor],
        sizes: Sizes,
        error_base: int = 0,
    ) -> None:
        ranks = len(regions)
        if not 0 < ranks <= RANKS_MAX or not own or own[0] < 0 or own[-1] >= ranks:
            raise ValueError(f"ranks {own} of {ranks}; a group has up to {RANKS_MAX}")
        self._cuda, self.device, self._address, self._stream = on
        self.ranks, self.own, self.sizes = ranks, own, sizes
        self._calls = 0
        # The next chunk, by rank of this process, other rank, and True for a received message.
        self._chunks: dict[tuple[int, int, bool], int] = {}
        parts, _ = layout(ranks, sizes)
        self._regions = [_Region(*(begin + part for part in parts)) for begin in regions]
        self._errors, self._error_base = errors, error_base

    def all_reduce(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor] | None = None
    ) -> Sequence[Tensor]:
        """The sum of all ranks' inputs, in the order of ranks, with the same bits on each.

        Args:
            inputs: Tensors of this process' ranks, of one shape, in float32, bfloat16 or float16.
            outputs: Tensors for the sums, which may be the inputs; new memory if not given.
        """
        outputs = outputs or [torch.empty_like(x) for x in inputs]
        size = inputs[0].numel() * inputs[0].element_size()
        kind = "one_shot" if size <= self.sizes.one_shot_bytes else "two_shot"
        self._run(f"all_reduce_{kind}", inputs, outputs, inputs[0].numel())
        return outputs

    def reduce_scatter(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor] | None = None
    ) -> Sequence[Tensor]:
        """Each rank's part, along dim 0, of the sum of all inputs.

        Args:
            inputs: [ranks * n, ...] in float32, bfloat16 or float16.
            outputs: As in `all_reduce`, [n, ...].
        """
        rows = inputs[0].shape[0]
        if rows % self.ranks:
            raise ValueError(f"reduce_scatter: {rows} rows for {self.ranks} ranks")
        outputs = outputs or [x.new_empty(rows // self.ranks, *x.shape[1:]) for x in inputs]
        self._run("reduce_scatter", inputs, outputs, outputs[0].numel())
        return outputs

    def all_gather(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor] | None = None
    ) -> Sequence[Tensor]:
        """All ranks' inputs [n, ...], below each other: [ranks * n, ...]."""
        outputs = outputs or [x.new_empty(self.ranks * x.shape[0], *x.shape[1:]) for x in inputs]
        self._run("all_gather", inputs, outputs, inputs[0].numel())
        return outputs

    def broadcast(
        self, inputs: Sequence[Tensor], root: int, outputs: Sequence[Tensor] | None = None
    ) -> Sequence[Tensor]:
        """The input of rank `root`; those of other ranks give shape and dtype."""
        outputs = outputs or [torch.empty_like(x) for x in inputs]
        self._run("broadcast", inputs, outputs, inputs[0].numel(), root)
        return outputs

    def exchange(
        self,
        sends: Sequence[tuple[int, Tensor] | None],
        receives: Sequence[tuple[int, Tensor] | None],
    ) -> None:
        """Sends a tensor to a rank, and receives one from a rank; elements of 2, 4 or 8 bytes.

        Args:
            sends: For each of this process' ranks: the target rank and the tensor; or None.
            receives: The source rank, and a tensor of the sender's size to fill; or None.
        """
        tensors = [one[1] for one in (*sends, *receives) if one is not None]
        element = {min(x.element_size(), 4) for x in tensors}
        if len(element) != 1 or element & {1}:
            raise ValueError(f"exchange: {[x.dtype for x in tensors]} are not moved together")
        (size,) = element
        step = self.sizes.box_bytes // size
        messages = (
            self._messages(sends, step, size, is_received=False),
            self._messages(receives, step, size, is_received=True),
        )
        peers = (
            self._operands("input", [one and one[1] for one in sends]),
            self._operands("output", [one and one[1] for one in receives]),
            self._parts("boxes"),
            self._parts("arrived"),
            self._parts("taken"),
            self._operands("error", self._errors),
        )
        waits = (step, self._timeout())
        self._cuda.exchange(size, peers, self._local(), *messages, waits, self._stream())

    def check(self) -> None:
        """Waits for all launches. TimeoutError: a rank did not come; the group cannot be used any
        more.
        """
        for rank, error in zip(self.own, self._errors, strict=True):
            missing, _ = error.tolist()
            if missing:
                seconds, other = self.sizes.timeout_seconds, missing - 1 - self._error_base
                raise TimeoutError(f"rank {rank} waited {seconds} s for rank {other}")

    def _run(
        self,
        name: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        elements: int,
        root: int = 0,
    ) -> None:
        self._calls += 1
        peers = (
            self._operands("input", inputs),
            self._operands("output", outputs),
            self._parts("staging"),
            self._parts("flags"),
            self._operands("error", self._errors),
        )
        waits = (self.sizes.slot_bytes, self._timeout())
        rest = (self._calls % 2**32, root, elements, waits, self._error_base)
        dtype = str(inputs[0].dtype).removeprefix("torch.")
        self._cuda.collective(name, dtype, peers, self._local(), *rest, self._stream())

    def _messages(
        self,
        given: Sequence[tuple[int, Tensor] | None],
        step: int,
        size: int,
        *,
        is_received: bool,
    ) -> list[_OneMessage]:
        """Messages by rank, in elements of `size` bytes and chunks of `step` elements."""
        table: list[_OneMessage] = [None] * self.ranks
        for rank, one in zip(self.own, given, strict=True):
            if one is None:
                continue
            other, tensor = one
            elements = tensor.numel() * tensor.element_size() // size
            key = (rank, other, is_received)
            first = self._chunks.get(key, 1)
            self._chunks[key] = first + (elements + step - 1) // step
            table[rank] = (other, first % 2**32, elements)
        return table

    def _operands(self, name: str, tensors: Sequence[Tensor | None]) -> list[int]:
        """Addresses of the tensors by rank; 0 for ranks of other processes."""
        table = [0] * self.ranks
        for rank, x in zip(self.own, tensors, strict=True):
            table[rank] = 0 if x is None else self._address(name, x, x.dtype)
        return table

    def _parts(self, part: str) -> list[int]:
        """Addresses of a part of the regions, by rank."""
        return [getattr(region, part) for region in self._regions]

    def _local(self) -> tuple[int, int, int]:
        return self.own[0], len(self.own), self.sizes.blocks

    def _timeout(self) -> int:
        return int(self.sizes.timeout_seconds * 1e9)


class CudaCollectives:
    """A `gt.worker.device_kernels.Collectives`.

    Args:
        on: This worker's device.
        sizes: Sizes, equal on all workers.
    """

    def __init__(self, on: CudaDevice, sizes: Sizes = OF_WORKER) -> None:
        self._on, self._sizes = on, sizes
        self.timeout_seconds = sizes.timeout_seconds

    def refusal(
        self,
        op: str,
        attributes: dict[str, object],
        ranks: int,
        operand: Tensor | None,
        result: Tensor | None,
    ) -> str | None:
        """The reason for which no kernel takes the collective; None if one does."""
        value = result if operand is None else operand
        if op not in _SLOT_SHARES or value is None:
            return "that operator"
        if ranks > RANKS_MAX:
            return f"more than {RANKS_MAX} members"
        if not _is_below_each_other(attributes, value):
            return "shards that are uneven, or not one behind the other"
        if not value.numel():
            return "no elements"
        if op in _SUMS and (attributes["reduce"] != "sum" or value.dtype not in SUMMED):
            return f"{attributes['reduce']} of {value.dtype}"
        if value.element_size() not in _MOVED:
            return str(value.dtype)
        is_one_shot = value.nbytes <= self._sizes.one_shot_bytes
        share = 1 if op == "all_reduce" and is_one_shot else _SLOT_SHARES[op]
        if value.nbytes > self._sizes.slot_bytes // share:
            return f"more than {self._sizes.slot_bytes // share} bytes"
        return None

    def region_bytes(self, ranks: int) -> int:
        """Bytes of each member's region."""
        return layout(ranks, self._sizes)[1]

    def group(self, me: int, regions: list[int], errors: Tensor, base: int) -> Launch:
        """A function that launches for one member and counts its calls."""
        own = CudaGroup(self._on, range(me, me + 1), regions, [errors], self._sizes, base)

        def launch(
            op: str,
            attributes: dict[str, object],
            members: list[int],
            operand: Tensor | None,
            result: Tensor | None,
        ) -> None:
            assert result is not None, op
            outputs = [_flat(op, result)]
            inputs = outputs if operand is None else [_flat(op, operand)]
            if op == "broadcast":
                own.broadcast(inputs, members.index(cast("int", attributes["root"])), outputs)
            elif op == "all_reduce":
                own.all_reduce(inputs, outputs)
            elif op == "reduce_scatter":
                own.reduce_scatter(inputs, outputs)
            else:
                own.all_gather(inputs, outputs)

        return launch


# Divisor of a slot for a member's largest value; an all-reduce in one shot uses all of it.
_SLOT_SHARES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "broadcast": 1}
_SUMS = ("all_reduce", "reduce_scatter")


def _is_below_each_other(attributes: dict[str, object], value: Tensor) -> bool:
    """True if all shards have one length and each begins where the one before it ends."""
    if "sizes" not in attributes:
        return True
    dim, sizes = cast("int", attributes["dim"]), cast("Sequence[int]", attributes["sizes"])
    return len(set(sizes)) == 1 and math.prod(value.shape[:dim]) == 1


def _flat(op: str, x: Tensor) -> Tensor:
    """A contiguous tensor in the form for kernels: flat, in a dtype to sum or only to move."""
    flat = x.view(-1)
    return flat if op in _SUMS else flat.view(_MOVED[x.element_size()])
