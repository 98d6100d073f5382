"""Interface of a device to collectives: memory that processes share, queues of work, their events.

`gt.worker.pytorch.cuda_memory` implements it for CUDA. Nothing here knows of collectives.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from gt import _core


class Queue(Protocol):
    """Queue of work beside the computation, in order.

    An event has a name, by which any process finds it. A wait for it is queued, and concerns the
    event's last record at that moment.
    """

    def run(self, work: Callable[[], None]) -> None:
        """Queues the work that `work` asks of torch, of `Device.read` and of kernels."""

    def done(self) -> bytes:
        """Name of an event behind all work queued here."""

    def wait(self, event: bytes) -> None:
        """Makes all work queued here from now on begin after the event."""


class Device(Protocol):
    """A device: memory that other processes of this host can map, a queue that computes, two
    others.
    """

    @property
    def domain(self) -> str:
        """A word shared by workers that, as far as anybody knows, can map each other's memory."""

    @property
    def beside(self) -> Queue:
        """Queue that reads other members' memory, and computes with it."""

    @property
    def meetings(self) -> Queue:
        """Queue of kernels that wait on their device for those of other members, and of nothing
        else.
        """

    def zeros(self, count: int, dtype: torch.dtype) -> Tensor:
        """Zeros in the device's memory, written by the queue that computes."""

    def seen(self, count: int) -> Tensor:
        """int32 zeros in the host's memory; a queue's copies into it are visible without a wait."""

    def export(self, tensor: Tensor) -> tuple[bytes, int] | None:
        """The name of the allocation that holds a contiguous tensor, and its first byte there.

        None if other processes cannot map it.
        """

    def open(self, name: bytes) -> int:
        """Maps another process's allocation; raises OSError where that cannot be."""

    def address(self, opened: int) -> int:
        """Address of an opened allocation for kernels here."""

    def close(self, opened: int) -> None:
        """Unmaps it as soon as no work queued by now can read it."""

    def read(self, opened: int, start: int, stride: int, to: Tensor) -> None:
        """Copies rows of bytes of an allocation into a tensor of rows; called within a queue.

        Args:
            opened: the allocation, as it was opened.
            start: its first byte.
            stride: bytes from one row's start to the next's.
            to: [rows, elements], each row without a gap.
        """

    def computed(self) -> bytes:
        """An event behind all computation that has been queued."""

    def wait_to_compute(self, event: bytes) -> None:
        """Makes all computation queued from now on begin after the event."""


class BorrowedBuffer(NamedTuple):
    """Location of a tensor: the allocation's name, the tensor's first byte there, its length in
    bytes.
    """

    name: bytes
    start: int
    length: int


class KernelOffer(NamedTuple):
    """A member's offer to run a collective by kernels that meet on the devices."""

    # Digest of the regions of all members with which it has launched before; zeros for none.
    group: bytes
    # Memory of this member in which the kernels meet.
    region: BorrowedBuffer


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceBuffers:
    """A member's first payload."""

    # Name of the member's process: a worker that comes back under the same index has another one.
    process: bytes
    # True if it has read memory of all other members before.
    knows_all: bool
    event: bytes
    operand: BorrowedBuffer | None
    result: BorrowedBuffer | None
    # Words that tell that its memory may be wrong, for members whose kernels meet.
    errors: BorrowedBuffer | None = None
    # None if this collective does not go by kernels.
    kernel: KernelOffer | None = None

    def encode(self) -> bytes:
        """The payload in the form in which it is sent."""
        buffers = (self.operand, self.result, self.errors)
        return _core.encode_device_buffers(
            self.process, self.knows_all, self.event, buffers, self.kernel
        )

    @classmethod
    def decode(cls, payload: bytes) -> DeviceBuffers:
        """The payload of another member; raises ValueError."""
        process, knows_all, event, buffers, kernel = _core.decode_device_buffers(payload)
        operand, result, errors = (one and BorrowedBuffer(*one) for one in buffers)
        return cls(
            process=process,
            knows_all=knows_all,
            event=event,
            operand=operand,
            result=result,
            errors=errors,
            kernel=kernel and KernelOffer(kernel[0], BorrowedBuffer(*kernel[1])),
        )
