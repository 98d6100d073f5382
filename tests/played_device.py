"""A worker whose values are on a device that is played, started as `python -m gt.worker` is.

The device's memory is what other processes of this host may map, its queue beside the computation a
thread. Freed memory is taken again at once, and events are few and recorded again and again: what
is read too early or too late shows in the numbers.

    PLAYED=shut     other processes cannot open the memory
    PLAYED=private  nor is it announced to them
"""

import ctypes
import dataclasses
import functools
import mmap
import os
import pathlib
import queue
import select
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor

from gt.worker import __main__, kernels
from gt.worker.torch_devices import Devices

SEGMENT_BYTES = 1 << 20
EVENTS = 4  # of each queue
YIELDS = 50  # before anything is done beside
LOOKS = 2_000  # between two looks whether a process lives


class Segment:
    """Memory that others find by our process and the descriptor's number."""

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create(f"played by {os.getpid()}")
        os.ftruncate(self.fd, size)
        self.memory = mmap.mmap(self.fd, size)
        self.address = ctypes.addressof(ctypes.c_ubyte.from_buffer(self.memory))
        self.size, self.used = size, 0
        self.name = f"{os.getpid()} {self.fd}".encode()


class Played:
    """A `gt.worker.torch_devices.Device`."""

    domain = "played"

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._segments: list[Segment] = []
        self._free: dict[int, list[tuple[Segment, int]]] = defaultdict(list)
        self._mapped: list[memoryview | None] = []
        self._page = Segment(mmap.PAGESIZE)
        self._records = [0, 0]
        self._pages: dict[bytes, memoryview] = {}
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    # Memory

    def allocate(self, size: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        count = functools.reduce(int.__mul__, size, 1)
        if not count:
            return torch.empty(size, dtype=dtype)
        length = count * dtype.itemsize
        room = (length + 63) // 64 * 64
        segment, start = self._free[room].pop() if self._free[room] else self._new(room)
        array = (ctypes.c_ubyte * length).from_buffer(segment.memory, start)
        weakref.finalize(array, self._free[room].append, (segment, start))
        return torch.frombuffer(array, dtype=dtype).view(size)

    def _new(self, room: int) -> tuple[Segment, int]:
        if not self._segments or self._segments[-1].used + room > self._segments[-1].size:
            self._segments.append(Segment(max(room, SEGMENT_BYTES)))
        segment = self._segments[-1]
        segment.used += room
        return segment, segment.used - room

    def _segment(self, address: int) -> Segment | None:
        for segment in self._segments:
            if segment.address <= address < segment.address + segment.size:
                return segment
        return None

    def home(self, value: object) -> object:
        """The same value in the device's memory."""
        if isinstance(value, tuple):
            return tuple(map(self.home, value))
        if not isinstance(value, Tensor) or not value.numel() or self._segment(value.data_ptr()):
            return value
        return self.allocate(tuple(value.shape), value.dtype).copy_(value)

    def export(self, tensor: Tensor) -> tuple[bytes, int] | None:
        segment = self._segment(tensor.data_ptr())
        assert segment is not None, "a value that is not in the device's memory"
        if self._mode == "private":
            return None
        return segment.name, tensor.data_ptr() - segment.address

    def open(self, name: bytes) -> int:
        if self._mode == "shut":
            raise PermissionError("the device lets nobody in")
        self._mapped.append(_map(name))
        return len(self._mapped) - 1

    def close(self, opened: int) -> None:
        done = threading.Event()
        self._queue.put(done.set)
        done.wait()
        self._mapped[opened] = None

    def read(self, opened: int, start: int, stride: int, to: Tensor) -> None:
        rows, run = to.shape
        memory = self._mapped[opened]
        assert memory is not None, "read after it was closed"
        size = to.element_size()
        flat = torch.frombuffer(memory, dtype=to.dtype, offset=start)
        to.copy_(flat.as_strided((rows, run), (stride // size, 1)))

    # Queues: what is computed is computed when it is asked for.

    def _run(self) -> None:
        with torch.inference_mode():
            while True:
                work = self._queue.get()
                for _ in range(YIELDS):
                    select.select((), (), (), 0)
                try:
                    work()
                except BaseException:  # noqa: BLE001 - whatever it is, nothing here goes on
                    sys.excepthook(*sys.exc_info())
                    os._exit(1)

    def queue_beside(self, work: Callable[[], None]) -> None:
        self._queue.put(work)

    def computed(self) -> bytes:
        return self._record(0)()

    def done_beside(self) -> bytes:
        over = self._record(1)
        self._queue.put(over)
        return over(is_over=False)

    def _record(self, which: int) -> Callable[..., bytes]:
        """An event is two counts on a page: of its records, and of those that are over."""
        slot = which * EVENTS + self._records[which] % EVENTS
        self._records[which] += 1
        page = memoryview(self._page.memory).cast("q")
        page[2 * slot] += 1
        record = page[2 * slot]

        def over(*, is_over: bool = True) -> bytes:
            if is_over:
                page[2 * slot + 1] = record
            return self._page.name + f" {slot}".encode()

        return over

    def _find(self, event: bytes) -> Callable[[], None]:
        name, slot_text = event.rsplit(b" ", 1)
        if name not in self._pages:
            own = name == self._page.name
            self._pages[name] = (memoryview(self._page.memory) if own else _map(name)).cast("q")
        page, slot, pid = self._pages[name], int(slot_text), int(name.split()[0])
        record = page[2 * slot]

        def wait() -> None:
            looks = 0
            while page[2 * slot + 1] < record and (looks % LOOKS or _lives(pid)):
                looks += 1
                select.select((), (), (), 0)  # lets other threads go on

        return wait

    def wait_beside(self, event: bytes) -> None:
        self._queue.put(self._find(event))

    def wait_to_compute(self, event: bytes) -> None:
        self._find(event)()


def _map(name: bytes) -> memoryview:
    pid, number = name.decode().split()
    descriptor = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR)
    try:
        return memoryview(mmap.mmap(descriptor, 0))
    finally:
        os.close(descriptor)


def _lives(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return state.rsplit(")", 1)[1].split()[0] not in ("Z", "X")


_HOST = kernels.backend(torch.device("cpu"))


def backend(_host: torch.device) -> kernels.Backend[Tensor]:
    """Torch on the played device."""
    device = Played(os.environ.get("PLAYED", ""))
    host = _HOST

    def away(kernel: Callable[..., object]) -> Callable[..., object]:
        return lambda *arguments: device.home(kernel(*arguments))

    return dataclasses.replace(
        host,
        kernels={name: away(kernel) for name, kernel in host.kernels.items()},
        number_first={name: away(kernel) for name, kernel in host.number_first.items()},
        in_place={
            name: [(operands, away(kernel), swapped) for operands, kernel, swapped in listed]
            for name, listed in host.in_place.items()
        },
        allocate=device.allocate,
        contiguous=lambda value: value.contiguous().clone(),
        write=kernels.write,
        collective_backends={"device": Devices(device).backend()},
    )


if __name__ == "__main__":
    os.environ["GT_ATEN"] = "off"  # ATen in C++ would make results in the host's own memory
    kernels.backend = backend
    sys.exit(__main__.main())
