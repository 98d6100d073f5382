"""CUDA devices whose memory other processes read, by the driver's inter-process handles.

torch's own functions for this (`UntypedStorage._share_cuda_`) are not used: they count references
in a file for each tensor, and make the receiver a tensor on the sender's device, which for another
GPU creates a context there in every process. The driver maps a foreign allocation into the current
context, and its copies take any address.
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MEM.html
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import pathlib
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

HANDLE_BYTES = 64
LAZY_ENABLE_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
MEMORY_OF_DEVICE = 2  # CU_MEMORYTYPE_DEVICE
BUFFER_ID = 7  # CU_POINTER_ATTRIBUTE_BUFFER_ID
# Number of events in each queue's ring: as many as collectives in flight at a time. An event that
# is recorded again before another process waits for it only makes that wait longer.
EVENTS = 128
# Limit of other processes' events that stay open: those of a few dozen workers.
OPENED_EVENTS_MAX = 8192


class _Handle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_byte * HANDLE_BYTES),)


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = (
        ("source_x", ctypes.c_size_t),
        ("source_y", ctypes.c_size_t),
        ("source_type", ctypes.c_uint),
        ("source_host", ctypes.c_void_p),
        ("source_device", ctypes.c_uint64),
        ("source_array", ctypes.c_void_p),
        ("source_pitch", ctypes.c_size_t),
        ("target_x", ctypes.c_size_t),
        ("target_y", ctypes.c_size_t),
        ("target_type", ctypes.c_uint),
        ("target_host", ctypes.c_void_p),
        ("target_device", ctypes.c_uint64),
        ("target_array", ctypes.c_void_p),
        ("target_pitch", ctypes.c_size_t),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class DriverError(OSError):
    """A failed call of the driver, with CUDA's number of the reason."""


class Driver:
    """The functions of libcuda that are needed here. A context must be current."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def _call(self, name: str, *arguments: object) -> None:
        number = getattr(self._library, name)(*arguments)
        if number:
            raise DriverError(f"{name}: CUDA error {number}")

    def allocation(self, address: int) -> tuple[int, int]:
        """First byte and length of the allocation that holds an address."""
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        arguments = (ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
        self._call("cuMemGetAddressRange_v2", *arguments)
        return base.value, size.value

    def buffer_id(self, address: int) -> int:
        """A number that no other allocation of this process has, or will have."""
        number = ctypes.c_uint64()
        asked = (ctypes.byref(number), ctypes.c_int(BUFFER_ID), ctypes.c_uint64(address))
        self._call("cuPointerGetAttribute", *asked)
        return number.value

    def handle(self, base: int) -> bytes:
        """The handle by which another process opens the allocation."""
        handle = _Handle()
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(base))
        return bytes(handle)

    def open(self, handle: bytes) -> int:
        """Opens an allocation; returns its address here."""
        address = ctypes.c_uint64()
        flags = ctypes.c_uint(LAZY_ENABLE_PEER_ACCESS)
        handle_copy = _Handle.from_buffer_copy(handle)
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), handle_copy, flags)
        return address.value

    def close(self, address: int) -> None:
        """Unmaps an opened allocation."""
        self._call("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def copy(self, source: int, target: int, length: int, stream: int) -> None:
        """Queues a copy of bytes."""
        where = (ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(length))
        self._call("cuMemcpyDtoDAsync_v2", *where, ctypes.c_void_p(stream))

    def copy_rows(
        self, source: tuple[int, int], target: tuple[int, int], size: tuple[int, int], stream: int
    ) -> None:
        """Queues a copy of rows of bytes.

        Args:
            source: address, and bytes between the starts of two rows.
            target: address, and bytes between the starts of two rows.
            size: number of rows, and bytes of a row.
            stream: stream in which it is queued.
        """
        rows = _Copy2D(
            source_type=MEMORY_OF_DEVICE,
            source_device=source[0],
            source_pitch=source[1],
            target_type=MEMORY_OF_DEVICE,
            target_device=target[0],
            target_pitch=target[1],
            height=size[0],
            width=size[1],
        )
        self._call("cuMemcpy2DAsync_v2", ctypes.byref(rows), ctypes.c_void_p(stream))


class _Queue:
    """A `gt.worker.device.Queue`.

    Args:
        cuda: the device.
        stream: stream in which work is queued.
    """

    def __init__(self, cuda: Cuda, stream: torch.cuda.Stream) -> None:
        self._cuda, self.stream = cuda, stream
        self._events = _ring()

    def run(self, work: Callable[[], None]) -> None:
        with torch.cuda.stream(self.stream):
            work()

    def done(self) -> bytes:
        return self._cuda.record(next(self._events), self.stream)

    def wait(self, event: bytes) -> None:
        self.stream.wait_event(self._cuda.event(event))


class Cuda:
    """A `gt.worker.device.Device`.

    Args:
        device: the GPU of this worker.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        torch.cuda.set_device(device)
        # Creates the context.
        torch.empty(1, device=device)
        self._driver = Driver()
        self.beside, self.meetings = self._queue(), self._queue()
        self.domain = domain(device.index or 0)
        self._events = _ring()
        self._opened: OrderedDict[bytes, torch.cuda.Event] = OrderedDict()
        self._own: dict[bytes, torch.cuda.Event] = {}
        # Mappings that are unmapped once these events are over.
        self._closing: list[tuple[list[torch.cuda.Event], int]] = []
        self._name = functools.lru_cache(maxsize=1024)(self._name_of)

    def _queue(self) -> _Queue:
        return _Queue(self, torch.cuda.Stream(self._device))  # type: ignore[no-untyped-call]

    def zeros(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(count, dtype=dtype, device=self._device)

    def seen(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int32, pin_memory=True)

    def export(self, tensor: Tensor) -> tuple[bytes, int] | None:
        """None if the driver has no handle, for example for memory of expandable segments."""
        try:
            base, size = self._driver.allocation(tensor.data_ptr())
            # A freed allocation's address may come back, with other memory behind it.
            name = self._name(base, size, self._driver.buffer_id(base))
        except DriverError:
            return None
        return name, tensor.data_ptr() - base

    def _name_of(self, base: int, size: int, buffer_id: int) -> bytes:
        numbers = (number.to_bytes(8, "little") for number in (size, buffer_id))
        return b"".join([self._driver.handle(base), *numbers])

    def open(self, name: bytes) -> int:
        self._close_what_rests()
        return self._driver.open(name[:HANDLE_BYTES])

    def address(self, opened: int) -> int:
        return opened

    def close(self, opened: int) -> None:
        # A wait here could keep apart kernels that wait for each other on the devices.
        events = []
        for queue in (self.beside, self.meetings):
            events.append(torch.cuda.Event())  # type: ignore[no-untyped-call]
            events[-1].record(queue.stream)
        self._closing.append((events, opened))
        self._close_what_rests()

    def _close_what_rests(self) -> None:
        rest = []
        for events, opened in self._closing:
            if all(event.query() for event in events):  # type: ignore[no-untyped-call]
                self._driver.close(opened)
            else:
                rest.append((events, opened))
        self._closing = rest

    def read(self, opened: int, start: int, stride: int, to: Tensor) -> None:
        rows, run = to.shape
        length = run * to.element_size()
        source, target = opened + start, to.data_ptr()
        stream = torch.cuda.current_stream(self._device).cuda_stream
        pitch = to.stride(0) * to.element_size()
        if rows == 1 or stride == pitch == length:
            self._driver.copy(source, target, rows * length, stream)
        else:
            self._driver.copy_rows((source, stride), (target, pitch), (rows, length), stream)

    def computed(self) -> bytes:
        return self.record(next(self._events), torch.cuda.current_stream(self._device))

    def wait_to_compute(self, event: bytes) -> None:
        torch.cuda.current_stream(self._device).wait_event(self.event(event))

    def record(self, event: torch.cuda.Event, stream: torch.cuda.Stream) -> bytes:
        """Records an event of ours behind a stream's work; returns its name."""
        event.record(stream)
        name = bytes(event.ipc_handle())  # type: ignore[no-untyped-call]
        self._own[name] = event
        return name

    def event(self, name: bytes) -> torch.cuda.Event:
        """The event of that name, ours or another process's."""
        # A process cannot open a handle that it made itself.
        if name in self._own:
            return self._own[name]
        if name not in self._opened:
            if len(self._opened) >= OPENED_EVENTS_MAX:
                self._opened.popitem(last=False)
            opened = torch.cuda.Event.from_ipc_handle(self._device, name)  # type: ignore[no-untyped-call]
            self._opened[name] = opened
        self._opened.move_to_end(name)
        return self._opened[name]


def _ring() -> itertools.cycle[torch.cuda.Event]:
    events = (
        torch.cuda.Event(interprocess=True)  # type: ignore[no-untyped-call]
        for _ in range(EVENTS)
    )
    return itertools.cycle(list(events))


def domain(own: int) -> str:
    """A word for the GPUs of this host that reach each other and ours: equal words share memory."""
    host = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    peers = [
        str(torch.cuda.get_device_properties(other).uuid)
        for other in range(torch.cuda.device_count())
        if other == own or torch.cuda.can_device_access_peer(own, other)
    ]
    return domain_text(host, peers)


def domain_text(host: str, peers: Sequence[str]) -> str:
    """Host and GPUs as one text, independent of the order in which a process sees them."""
    return " ".join([host, *sorted(peers)])
