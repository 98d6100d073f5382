"""Collectives of tensors in devices' memory, read by each member where the others have them.

Everything is queued on the devices, and this process waits for none of it. A member says where
its tensors are, with an event that is over when they are computed; the others queue their reading
behind that event, beside what they compute, and send an event that is over when they have read.
What knows of a device stands behind `Device` (`gt.worker.torch_cuda`); nothing here does.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from gt import _core
from gt.worker.collective_backend import (
    CollectiveBackend,
    DirectReads,
    Pull,
    Reduction,
    StridedRange,
    Turn,
)

# Allocations of other processes that stay mapped. An allocator hands out memory of a few dozen.
OPENED_MAX = 256
# Groups that have found out that they have no such backend.
REFUSED_MAX = 1024
# Elements reduced at a time: the sums need no more memory than that.
BLOCK = 1 << 22


class Device(Protocol):
    """Memory that other processes of this host can map, and two queues of work on it.

    One queue computes; beside it runs another. An event has a name, by which any process finds it.
    Waiting for it is queued, and means its last record at that moment.
    """

    # Processes with the same text can, as far as anybody knows, map each other's memory.
    domain: str

    def export(self, tensor: Tensor) -> tuple[bytes, int] | None:
        """The name of the allocation that holds a contiguous tensor, and its first byte there.

        None where other processes cannot have it.
        """

    def open(self, name: bytes) -> int:
        """Maps another process's allocation; raises OSError where that cannot be."""

    def close(self, opened: int) -> None:
        """Unmaps it; nothing that is queued reads it any more, or it waits until that is so."""

    def queue_beside(self, work: Callable[[], None]) -> None:
        """What `work` asks of torch and of `read` runs beside the computation, in order."""

    def read(self, opened: int, start: int, stride: int, to: Tensor) -> None:
        """Within `queue_beside`: rows of bytes of an allocation into a tensor of rows.

        Args:
            opened: the allocation, as it was opened.
            start: its first byte.
            stride: bytes from one row's start to the next's.
            to: [rows, elements], each row without a gap.
        """

    def computed(self) -> bytes:
        """An event behind all that has been queued to be computed."""

    def done_beside(self) -> bytes:
        """An event behind all that has been queued beside it."""

    def wait_beside(self, event: bytes) -> None:
        """What is queued beside from now on begins when the event is over."""

    def wait_to_compute(self, event: bytes) -> None:
        """What is queued to be computed from now on begins when the event is over."""


class BorrowedBuffer(NamedTuple):
    """Where a tensor is: the allocation's name, the tensor's first byte there, its bytes."""

    name: bytes
    start: int
    length: int


@dataclasses.dataclass(frozen=True)
class DeviceBuffers:
    """A member's first payload."""

    # Of its process: a worker that comes back under the same index is another one.
    process: bytes
    # Whether it has read memory of all other members before.
    knows_all: bool
    event: bytes
    operand: BorrowedBuffer | None
    result: BorrowedBuffer | None

    def encode(self) -> bytes:
        """As it goes to the others."""
        return _core.encode_device_buffers(
            self.process, self.knows_all, self.event, self.operand, self.result
        )

    @classmethod
    def decode(cls, payload: bytes) -> DeviceBuffers:
        """What another member has sent; raises ValueError."""
        process, knows_all, event, *buffers = _core.decode_device_buffers(payload)
        operand, result = (one and BorrowedBuffer(*one) for one in buffers)
        return cls(process, knows_all, event, operand, result)


class Devices:
    """All that a worker knows of the others' memory.

    Args:
        device: our own.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.process = secrets.token_bytes(16)
        # Other processes may have memory of ours mapped.
        self.has_exported = False
        self.opened: OrderedDict[tuple[bytes, bytes], int] = OrderedDict()
        # By a member's index, the process of which we have opened memory.
        self.known: dict[int, bytes] = {}
        self.refused: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def backend(self) -> CollectiveBackend[Tensor]:
        """For a worker's kernels."""
        return CollectiveBackend(domain=self.device.domain, rendezvous=self.rendezvous)

    def rendezvous(
        self,
        op: str,
        attributes: dict[str, object],
        tag: int,
        members: list[int],
        me: int,
        operand: Tensor | None,
        result: Tensor | None,
    ) -> tuple[DeviceRendezvous, bytes] | None:
        """Our part of one collective, or None where our memory cannot be had by others."""
        del op, attributes, tag
        if tuple(members) in self.refused:
            return None
        rendezvous = DeviceRendezvous(self, members, me, operand, result)
        buffers: list[BorrowedBuffer | None] = []
        for tensor in (rendezvous.operand, rendezvous.result):
            if tensor is None or not tensor.numel():
                buffers.append(None)
                continue
            exported = self.device.export(tensor)
            if exported is None:
                return None
            buffers.append(BorrowedBuffer(*exported, tensor.nbytes))
        knows_all = all(member in self.known for place, member in enumerate(members) if place != me)
        self.has_exported = True
        own = DeviceBuffers(self.process, knows_all, self.device.computed(), buffers[0], buffers[1])
        return rendezvous, own.encode()

    def open(self, process: bytes, buffer: BorrowedBuffer, needed: int) -> int:
        """The mapping of another member's memory, which is kept for the next time.

        Args:
            process: the member's.
            buffer: what others may read.
            needed: mappings that are in use together.
        """
        key = (process, buffer.name)
        if key in self.opened:
            self.opened.move_to_end(key)
            return self.opened[key]
        while len(self.opened) >= max(OPENED_MAX, needed):
            _, oldest = self.opened.popitem(last=False)
            self.device.close(oldest)
        self.opened[key] = self.device.open(buffer.name)
        return self.opened[key]

    def refuse(self, members: list[int]) -> None:
        """This group goes by messages from now on."""
        self.refused[tuple(members)] = None
        if len(self.refused) > REFUSED_MAX:
            self.refused.popitem(last=False)

    def met(self, member: int, process: bytes) -> None:
        """Memory of this worker has been opened; what an earlier one of its index had is closed."""
        before = self.known.get(member)
        if before is not None and before != process:
            for key in [key for key in self.opened if key[0] == before]:
                self.device.close(self.opened.pop(key))
        self.known[member] = process


class DeviceRendezvous:
    """Our part in one collective."""

    def __init__(
        self,
        devices: Devices,
        members: list[int],
        me: int,
        operand: Tensor | None,
        result: Tensor | None,
    ) -> None:
        self.devices, self.members, self.me = devices, members, me
        self.given = result
        self.operand = None if operand is None else operand.contiguous()
        # A result that is its operand too has the layout of that.
        self.result = self.operand if result is operand else result
        self.buffers: list[DeviceBuffers] = []
        self.reads: DirectReads | None = None
        self.is_trial = False
        # Our events: what has been queued beside the computation.
        self.queued: list[bytes] = []

    def negotiate(self, payloads: Sequence[bytes], reads: DirectReads | None) -> Turn:
        """As `gt.worker.collective_backend.Rendezvous` says."""
        if reads is not None:
            self.buffers, self.reads = (
                [DeviceBuffers.decode(payload) for payload in payloads],
                reads,
            )
            if all(shared.knows_all for shared in self.buffers):
                self._open_all()
                return self._begin()
            self.is_trial = True
            return False, _core.encode_device_trial(self._can_open_all())
        if self.is_trial:
            self.is_trial = False
            if not all(map(_core.decode_device_trial, payloads)):
                self.devices.refuse(self.members)
                return None
            for member, shared in zip(self.members, self.buffers, strict=True):
                self.devices.met(member, shared.process)
            return self._begin()
        # The others have reduced, or will, when these events are over.
        self._wait_beside(payloads)
        self._pull()
        return True, self._event()

    def finish(self) -> Tensor | None:
        """What is computed from now on finds the result."""
        self._wait_for_own()
        return self.result if self.result is not self.given else None

    def end(self, payloads: Sequence[bytes | None]) -> None:
        """What is computed from now on may write over what the others have read."""
        self._wait_for_own()
        for payload in payloads:
            event = payload and _core.decode_device_event(payload)
            if event:
                self.devices.device.wait_to_compute(event)

    def _wait_for_own(self) -> None:
        for event in self.queued[-1:]:
            self.devices.device.wait_to_compute(event)

    def _open_all(self) -> dict[tuple[int, bool], int]:
        """Memory of the others, by a member's place and whether it is its result."""
        opened = {}
        for place, shared in enumerate(self.buffers):
            for is_result, buffer in enumerate((shared.operand, shared.result)):
                if buffer is not None and place != self.me:
                    needed = 2 * len(self.buffers)
                    mapped = self.devices.open(shared.process, buffer, needed)
                    opened[place, bool(is_result)] = mapped
        return opened

    def _can_open_all(self) -> bool:
        try:
            self._open_all()
        except OSError:
            return False
        return True

    def _begin(self) -> Turn:
        assert self.reads is not None
        kept, reduction, pulls, shares_result = self.reads
        self._check_all(reduction, pulls)
        # Our own event too: the memory of our result may be in use until then.
        for shared in self.buffers:
            self.devices.device.wait_beside(shared.event)
        operand, result, opened = self.operand, self.result, self._open_all()
        if kept is not None and operand is not None and result is not None:
            to, own = _rows(result, kept[1]), _rows(operand, kept[0])
            self.devices.device.queue_beside(lambda: _copy(own, to))
        if reduction is not None:
            self.devices.device.queue_beside(lambda: self._reduce(reduction, opened))
        if shares_result:
            return False, self._event()
        self._pull()
        return True, self._event()

    def _check_all(self, reduction: Reduction | None, pulls: Sequence[Pull]) -> None:
        """Nothing is read that is not shared; raises RuntimeError."""
        read = [(place, of_result, source) for place, of_result, source, _ in pulls]
        if reduction is not None:
            read += [(place, False, source) for place, source in enumerate(reduction[1])]
        for place, of_result, (begin, rows, run, stride) in read:
            tensor = self.operand if self.result is None else self.result
            if place == self.me or tensor is None or not rows * run:
                continue
            buffer = self.buffers[place].result if of_result else self.buffers[place].operand
            end = (begin + (rows - 1) * stride + run) * tensor.element_size()
            has = 0 if buffer is None else buffer.length
            if end > has:
                who = self.members[place]
                raise RuntimeError(f"worker {who} lends {has} bytes, and {end} are to be read")

    def _event(self) -> bytes:
        self.queued.append(self.devices.device.done_beside())
        return _core.encode_device_event(self.queued[-1])

    def _wait_beside(self, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            event = _core.decode_device_event(payload)
            if event is None:
                raise ValueError(f"{len(payload)} bytes are no event")
            self.devices.device.wait_beside(event)

    def _reduce(self, reduction: Reduction, opened: dict[tuple[int, bool], int]) -> None:
        name, shards, to = reduction
        assert self.result is not None
        # The result has no gaps, the shards may.
        _, rows, run, _ = shards[self.me]
        whole = _rows(self.result, to).view(rows, run)
        for first, count, start, length in blocks(rows, run):
            out = whole[first : first + count, start : start + length]
            shards_of_block = (
                self._shard(place, (begin + first * stride + start, count, length, stride), opened)
                for place, (begin, _, _, stride) in enumerate(shards)
            )
            out.copy_(reduced(name, shards_of_block))

    def _shard(
        self, place: int, there: StridedRange, opened: dict[tuple[int, bool], int]
    ) -> Tensor:
        """A block of a member's shard, in memory of its own unless it is our operand."""
        assert self.result is not None
        if place == self.me and self.operand is not None:
            return _rows(self.operand, there)
        room = self.result.new_empty(there[1:3])
        self._read((place, False), there, room, opened)
        return room

    def _pull(self) -> None:
        if self.reads is not None and self.reads[2]:
            pulls, opened = self.reads[2], self._open_all()
            self.devices.device.queue_beside(lambda: self._pull_all(pulls, opened))

    def _pull_all(self, pulls: Sequence[Pull], opened: dict[tuple[int, bool], int]) -> None:
        assert self.result is not None
        for place, of_result, source, target in pulls:
            begin, rows, run, _ = source
            if not rows * run:
                continue
            to, who = _rows(self.result, target), (place, of_result)
            if rows == 1:
                self._read(who, (begin, *to.shape, to.shape[1]), to, opened)
            elif to.shape[0] == 1 or to.shape == (rows, run):
                self._read(who, source, to.view(rows, run), opened)
            else:
                room = to.new_empty((rows, run))
                self._read(who, source, room, opened)
                _copy(room, to)

    def _read(
        self,
        who: tuple[int, bool],
        source: StridedRange,
        to: Tensor,
        opened: dict[tuple[int, bool], int],
    ) -> None:
        place, of_result = who
        buffer = self.buffers[place].result if of_result else self.buffers[place].operand
        assert buffer is not None, "checked before anything is queued"
        begin, _, _, stride = source
        size = to.element_size()
        self.devices.device.read(opened[who], buffer.start + begin * size, stride * size, to)


def _copy(source: Tensor, to: Tensor) -> None:
    to.copy_(source.reshape(to.shape))


def _rows(tensor: Tensor, range_: StridedRange) -> Tensor:
    """A range of a contiguous tensor's elements: [rows, elements of a row]."""
    start, rows, run, stride = range_
    flat = tensor.view(-1)
    return flat.as_strided((rows, run), (stride, 1), flat.storage_offset() + start)


# First row, rows, first element of a row, elements of a row.
Block = tuple[int, int, int, int]


def blocks(rows: int, run: int) -> Iterator[Block]:
    """Rows of elements in chunks of at most BLOCK elements."""
    if run >= BLOCK:
        for row in range(rows):
            for start in range(0, run, BLOCK):
                yield row, 1, start, min(BLOCK, run - start)
    elif run:
        step = BLOCK // run
        for row in range(0, rows, step):
            yield row, min(step, rows - row), 0, run


def _larger(left: Tensor, right: Tensor) -> Tensor:
    # The first that is no number stays, and of two equal ones (of two zeros) the first.
    return torch.where((left >= right) | (left != left), left, right)  # noqa: PLR0124


def _smaller(left: Tensor, right: Tensor) -> Tensor:
    return torch.where((left <= right) | (left != left), left, right)  # noqa: PLR0124


Join = Callable[[Tensor, Tensor], Tensor]
_JOINS: dict[str, Join] = {"sum": torch.add, "prod": torch.mul, "max": _larger, "min": _smaller}
_JOINS_OF_BOOLS: dict[str, Join] = {
    "sum": torch.logical_or,
    "max": torch.logical_or,
    "prod": torch.logical_and,
    "min": torch.logical_and,
}


def reduced(name: str, shards: Iterable[Tensor]) -> Tensor:
    """Shards reduced one after the other; half precision in single, rounded by who copies it."""
    widened = map(_widened, shards)
    first = next(widened)
    joins = _JOINS_OF_BOOLS if first.dtype is torch.bool else _JOINS
    return functools.reduce(joins[name], widened, first)


def _widened(shard: Tensor) -> Tensor:
    return shard.float() if shard.dtype in (torch.float16, torch.bfloat16) else shard
