"""What collectives need of a device: memory that processes share, queues of work, and their events.

`gt.worker.torch_cuda` has it of CUDA. Nothing here knows what a collective does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from gt import _core


class Queue(Protocol):
    """Work beside the computation, in order.

    An event has a name, by which any process finds it. Waiting for it is queued, and means its last
    record at that moment.
    """

    def run(self, work: Callable[[], None]) -> None:
        """Queues what `work` asks of torch, of `Device.read` and of kernels."""

    def done(self) -> bytes:
        """An event behind all that has been queued here."""

    def wait(self, event: bytes) -> None:
        """What is queued here from now on begins when the event is over."""


class Device(Protocol):
    """Memory that other processes of this host can map, a queue that computes, two beside it."""

    @property
    def domain(self) -> str:
        """Who says the same can, as far as anybody knows, map each other's memory."""

    @property
    def beside(self) -> Queue:
        """Reads other members' memory, and computes of it."""

    @property
    def meetings(self) -> Queue:
        """Kernels that wait on their device for those of other members, and nothing else."""

    def zeros(self, count: int, dtype: torch.dtype) -> Tensor:
        """Memory here, filled by the queue that computes."""

    def seen(self, count: int) -> Tensor:
        """int32 of the host, zeros at first: what a queue copies there is seen without waiting."""

    def export(self, tensor: Tensor) -> tuple[bytes, int] | None:
        """The name of the allocation that holds a contiguous tensor, and its first byte there.

        None where other processes cannot have it.
        """

    def open(self, name: bytes) -> int:
        """Maps another process's allocation; raises OSError where that cannot be."""

    def address(self, opened: int) -> int:
        """Where an opened allocation is for kernels here."""

    def close(self, opened: int) -> None:
        """Unmaps it, as soon as nothing that is queued by now can read it."""

    def read(self, opened: int, start: int, stride: int, to: Tensor) -> None:
        """Within a queue: rows of bytes of an allocation into a tensor of rows.

        Args:
            opened: the allocation, as it was opened.
            start: its first byte.
            stride: bytes from one row's start to the next's.
            to: [rows, elements], each row without a gap.
        """

    def computed(self) -> bytes:
        """An event behind all that has been queued to be computed."""

    def wait_to_compute(self, event: bytes) -> None:
        """What is queued to be computed from now on begins when the event is over."""


class BorrowedBuffer(NamedTuple):
    """Where a tensor is: the allocation's name, the tensor's first byte there, its bytes."""

    name: bytes
    start: int
    length: int


class KernelOffer(NamedTuple):
    """A member's part in a collective by kernels that meet on the devices."""

    # Names the regions of all members among which it has launched one before; zeros for none.
    group: bytes
    # Its memory in which the kernels meet.
    region: BorrowedBuffer


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceBuffers:
    """A member's first payload."""

    # Of its process: a worker that comes back under the same index is another one.
    process: bytes
    # Whether it has read memory of all other members before.
    knows_all: bool
    event: bytes
    operand: BorrowedBuffer | None
    result: BorrowedBuffer | None
    # Words that say whether its memory may be wrong; of members whose kernels meet.
    errors: BorrowedBuffer | None = None
    # None where this collective does not go by kernels.
    kernel: KernelOffer | None = None

    def encode(self) -> bytes:
        """As it goes to the others."""
        buffers = (self.operand, self.result, self.errors)
        return _core.encode_device_buffers(
            self.process, self.knows_all, self.event, buffers, self.kernel
        )

    @classmethod
    def decode(cls, payload: bytes) -> DeviceBuffers:
        """What another member has sent; raises ValueError."""
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
