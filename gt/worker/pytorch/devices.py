"""Collectives of tensors in devices' memory, read by each member from the others' memory.

Everything is queued on the devices, and this process waits for none of it. A member sends the
location of its tensors, with an event that is over when they are computed; the others queue their
reads behind that event, beside their computation, and send an event that is over when they have
read. `gt.worker.device_kernels` runs collectives by kernels that meet on the devices, and `Device`
(`gt.worker.pytorch.cuda_memory`) is the one part that knows of a device.
"""

from __future__ import annotations

import functools
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence

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
from gt.worker.device import BorrowedBuffer, Device, DeviceBuffers
from gt.worker.device_kernels import DeviceKernels, KernelCall

# Limit of other processes' allocations that stay mapped. An allocator hands out memory of a few
# dozen.
OPENED_MAX = 256
# Limit of groups that are known to have no such backend.
REFUSED_MAX = 1024
# Elements reduced at a time: this bounds the sums' memory.
BLOCK = 1 << 22


class Devices:
    """This worker's mappings of other workers' memory.

    Args:
        device: our own.
        kernels: its kernels that meet those of other members, if it has any.
    """

    def __init__(self, device: Device, kernels: DeviceKernels | None = None) -> None:
        self.device, self.kernels = device, kernels
        self.process = secrets.token_bytes(16)
        # True once other processes may have memory of ours mapped.
        self.has_exported = False
        self.opened: OrderedDict[tuple[bytes, bytes], int] = OrderedDict()
        # Process whose memory we have opened, by the member's index.
        self.known: dict[int, bytes] = {}
        self.refused: OrderedDict[tuple[int, ...], None] = OrderedDict()

    def backend(self) -> CollectiveBackend[Tensor]:
        """The backend for the worker's loop."""
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
        """Our part of one collective; None if others cannot map our memory."""
        del tag
        self.check()
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
        rendezvous.begin(op, attributes)
        knows_all = all(member in self.known for place, member in enumerate(members) if place != me)
        self.has_exported = True
        own = DeviceBuffers(
            process=self.process,
            knows_all=knows_all,
            event=self.device.computed(),
            operand=buffers[0],
            result=buffers[1],
            errors=None if self.kernels is None else self.kernels.errors.offered(),
            kernel=None if rendezvous.call is None else rendezvous.call.offer,
        )
        return rendezvous, own.encode()

    def check(self) -> None:
        """Raises LostError if values that have come to the host by now may be wrong."""
        if self.kernels is not None:
            self.kernels.errors.check()

    def take_loss(self) -> bool:
        """True if all values so far may be wrong; a second call is False."""
        return self.kernels is not None and self.kernels.take_loss()

    def open(self, process: bytes, buffer: BorrowedBuffer, needed: int) -> int:
        """The mapping of another member's memory, which is kept for the next time.

        Args:
            process: the member's.
            buffer: memory that others may read.
            needed: number of mappings in use together.
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
        """Sends this group by messages from now on."""
        self.refused[tuple(members)] = None
        if len(self.refused) > REFUSED_MAX:
            self.refused.popitem(last=False)

    def met(self, member: int, process: bytes) -> None:
        """Records the process whose memory was opened; mappings of an earlier process of its index
        are closed.
        """
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
        # A result that is the operand too has the operand's layout.
        self.result = self.operand if result is operand else result
        self.buffers: list[DeviceBuffers] = []
        self.reads: DirectReads | None = None
        self.is_trial = False
        # Our events, behind the work queued beside the computation.
        self.queued: list[bytes] = []
        # The call, if the collective goes by kernels that meet.
        self.call: KernelCall | None = None
        self.errors = None if devices.kernels is None else devices.kernels.errors

    def begin(self, op: str, attributes: dict[str, object]) -> None:
        """Offers the collective to the kernels, if they take it."""
        if self.devices.kernels is not None:
            values = (self.operand, self.result)
            self.call = self.devices.kernels.begin(op, attributes, self.members, self.me, *values)

    def negotiate(self, payloads: Sequence[bytes], reads: DirectReads | None) -> Turn:
        """Goes on with the payloads of a round; see `gt.worker.collective_backend.Rendezvous`."""
        if reads is not None:
            self.buffers, self.reads = (
                [DeviceBuffers.decode(payload) for payload in payloads],
                reads,
            )
            if self.call is not None and not self.call.is_agreed(self.buffers):
                self.call = None
            is_known = self.call is None or self.call.is_known(self.buffers)
            if is_known and all(shared.knows_all for shared in self.buffers):
                return self._begin()
            self.is_trial = True
            return False, _core.encode_device_trial(self._can_open_all())
        if self.is_trial:
            self.is_trial = False
            if not all(map(_core.decode_device_trial, payloads)):
                self.devices.refuse(self.members)
                if self.call is not None:
                    self.call.cancel()
                    self.call = None
                return None
            for member, shared in zip(self.members, self.buffers, strict=True):
                self.devices.met(member, shared.process)
            return self._begin()
        # The others have reduced, or will, when these events are over.
        self._wait_beside(payloads)
        self._pull()
        return True, self._event()

    def is_over(self) -> bool:
        """True once all work is queued."""
        return self.call is None or self.call.is_over()

    def lose(self, peer: int) -> None:
        """Reports that a member is gone."""
        del peer
        if self.call is not None:
            self.call.lose()

    def finish(self) -> Tensor | None:
        """Makes all later computation wait for the result."""
        self._wait_for_own()
        if self.call is not None:
            self.call.finish()
        return self.result if self.result is not self.given else None

    def end(self, payloads: Sequence[bytes | None]) -> None:
        """Makes all later computation wait for the others' reads, so that it may overwrite the
        memory.
        """
        self._wait_for_own()
        if self.call is not None:
            # The others' kernels read only our region.
            self.call.end(payloads)
            return
        for payload in payloads:
            event = payload and _core.decode_device_event(payload)
            if event:
                self.devices.device.wait_to_compute(event)

    def _wait_for_own(self) -> None:
        for event in self.queued[-1:]:
            self.devices.device.wait_to_compute(event)

    def _open_all(self) -> dict[tuple[int, bool], int]:
        """The others' memory, by a member's place and True for its result."""
        opened = {}
        for place, shared in enumerate(self.buffers):
            for is_result, buffer in enumerate((shared.operand, shared.result)):
                if buffer is not None and place != self.me:
                    needed = 3 * len(self.buffers)
                    mapped = self.devices.open(shared.process, buffer, needed)
                    opened[place, bool(is_result)] = mapped
        return opened

    def _can_open_all(self) -> bool:
        try:
            self._open_all()
            if self.call is not None:
                self.call.open(self.buffers)
        except OSError:
            return False
        return True

    def _begin(self) -> Turn:
        assert self.reads is not None
        if self.call is not None:
            self.call.launch(self.buffers)
            return True, _core.encode_device_event(self.call.event or b"")
        ranges, reduction, pulls, shares_result = self.reads
        self._check_all(reduction, pulls)
        # Our own event too: the memory of our result may be in use until then.
        for shared in self.buffers:
            self.devices.device.beside.wait(shared.event)
        operand, result, opened = self.operand, self.result, self._open_all()
        self._read_errors()
        if ranges is not None and operand is not None and result is not None:
            to, own = _rows(result, ranges[1]), _rows(operand, ranges[0])
            self.devices.device.beside.run(lambda: _copy(own, to))
        if reduction is not None:
            self.devices.device.beside.run(lambda: self._reduce(reduction, opened))
        if shares_result:
            return False, self._event()
        self._pull()
        return True, self._event()

    def _check_all(self, reduction: Reduction | None, pulls: Sequence[Pull]) -> None:
        """Raises RuntimeError for a range outside of the memory that is shared."""
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

    def _read_errors(self) -> None:
        errors, words = self.errors, []
        if errors is None:
            return
        for place, shared in enumerate(self.buffers):
            if shared.errors is not None and place != self.me:
                needed = 3 * len(self.buffers)
                opened = self.devices.open(shared.process, shared.errors, needed)
                words.append((opened, shared.errors.start))
        self.devices.device.beside.run(lambda: errors.read(words))

    def _event(self) -> bytes:
        self.queued.append(self.devices.device.beside.done())
        return _core.encode_device_event(self.queued[-1])

    def _wait_beside(self, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            event = _core.decode_device_event(payload)
            if event is None:
                raise ValueError(f"{len(payload)} bytes are no event")
            self.devices.device.beside.wait(event)

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
        """A block of a member's shard, in new memory unless it is our operand."""
        assert self.result is not None
        if place == self.me and self.operand is not None:
            return _rows(self.operand, there)
        room = self.result.new_empty(there[1:3])
        self._read((place, False), there, room, opened)
        return room

    def _pull(self) -> None:
        if self.reads is not None and self.reads[2]:
            pulls, opened = self.reads[2], self._open_all()
            self.devices.device.beside.run(lambda: self._pull_all(pulls, opened))

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


# A block: first row, rows, first element of a row, elements of a row.
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
    # The first NaN stays, and of two equal elements (of two zeros) the first.
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
    """Shards reduced one after the other; half precision in float32, rounded where it is copied."""
    widened = map(_widened, shards)
    first = next(widened)
    joins = _JOINS_OF_BOOLS if first.dtype is torch.bool else _JOINS
    return functools.reduce(joins[name], widened, first)


def _widened(shard: Tensor) -> Tensor:
    return shard.float() if shard.dtype in (torch.float16, torch.bfloat16) else shard
