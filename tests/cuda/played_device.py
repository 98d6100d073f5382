"""A worker whose values are on a device that is played, started as `python -m gt.worker` is.

The device's memory is what other processes of this host may map, its queues beside the computation
threads. Freed memory is taken again at once, and events are few and recorded again and again: what
is read too early or too late shows in the numbers.

    PLAYED=shut     other processes cannot open the memory
    PLAYED=private  nor is it announced to them
    PLAYED=dies:N   the process dies in its kernel of the Nth collective

With GT_KERNELS=on collectives go by GT's kernels, which run under the emulator through the stand-in
of CUDA's driver in PLAYED_DRIVER; each is a line of the file in PLAYED_LOG.
"""

import contextlib
import ctypes
import dataclasses
import functools
import mmap
import os
import pathlib
import queue
import select
import signal
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable

import torch
from played_cuda import CPU, IMAGES, driver_of, native
from torch import Tensor

from gt import config
from gt.worker import __main__
from gt.worker.cuda.collectives import CudaCollectives, Sizes
from gt.worker.cuda.device import CudaDevice
from gt.worker.device_kernels import DeviceKernels
from gt.worker.pytorch import kernels
from gt.worker.pytorch.devices import Devices

SEGMENT_BYTES = 1 << 20
EVENTS = 4  # of each queue
YIELDS = 50  # before anything is done beside
LOOKS = 2_000  # between two looks whether a process lives
# In steps of a kernel: before its death, and the longest wait, of which a second has 20 million.
DIES_AFTER, STEPS_MAX = 100, 2_000_000_000


def sizes(seconds: float) -> Sizes:
    """Sizes so small that one-shot, two-shot and too large sums have a few hundred numbers."""
    return Sizes(4096, 256, 2, 256, seconds)


class Segment:
    """Memory that others find by our process and the descriptor's number."""

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create(f"played by {os.getpid()}")
        os.ftruncate(self.fd, size)
        self.memory = mmap.mmap(self.fd, size)
        self.address = ctypes.addressof(ctypes.c_ubyte.from_buffer(self.memory))
        self.size, self.used = size, 0
        self.name = f"{os.getpid()} {self.fd}".encode()


class Queue:
    """A `gt.worker.device.Queue`, in a thread.

    Args:
        played: the device.
        which: its number among the queues.
    """

    def __init__(self, played: "Played", which: int) -> None:
        self._played, self._which = played, which
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with torch.inference_mode():
            while True:
                work = self._work.get()
                for _ in range(YIELDS):
                    select.select((), (), (), 0)
                try:
                    work()
                except BaseException:  # noqa: BLE001 - whatever it is, nothing here goes on
                    sys.excepthook(*sys.exc_info())
                    os._exit(1)

    def run(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def done(self) -> bytes:
        over = self._played.record(self._which)
        self._work.put(over)
        return over(is_over=False)

    def wait(self, event: bytes) -> None:
        self._work.put(self._played.find(event))

    def finish(self) -> None:
        """Returns when all is done that has been queued."""
        done = threading.Event()
        self._work.put(done.set)
        done.wait()


class Played:
    """A `gt.worker.device.Device`."""

    domain = "played"

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._segments: list[Segment] = []
        self._free: dict[int, list[tuple[Segment, int]]] = defaultdict(list)
        self._mapped: list[memoryview | None] = []
        self._page = Segment(mmap.PAGESIZE)
        self._records = [0, 0, 0]
        self._pages: dict[bytes, memoryview] = {}
        self.beside, self.meetings = Queue(self, 1), Queue(self, 2)

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
        """A copy of the value in the device's memory."""
        if isinstance(value, tuple):
            return tuple(map(self.home, value))
        if not isinstance(value, Tensor) or not value.numel() or self._segment(value.data_ptr()):
            return value
        return self.allocate(tuple(value.shape), value.dtype).copy_(value)

    def zeros(self, count: int, dtype: torch.dtype) -> Tensor:
        return self.allocate((count,), dtype).zero_()

    def seen(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int32)

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

    def address(self, opened: int) -> int:
        return ctypes.addressof(ctypes.c_ubyte.from_buffer(self._memory(opened)))

    def memories(self) -> list[tuple[int, int]]:
        """First byte and size of our memory and of the memory mapped from others."""
        own = [(segment.address, segment.size) for segment in self._segments]
        opened = [number for number, memory in enumerate(self._mapped) if memory is not None]
        return own + [(self.address(one), self._memory(one).nbytes) for one in opened]

    def _memory(self, opened: int) -> memoryview:
        memory = self._mapped[opened]
        assert memory is not None, "used after it was closed"
        return memory

    def close(self, opened: int) -> None:
        self.beside.finish()
        self.meetings.finish()
        self._mapped[opened] = None

    def read(self, opened: int, start: int, stride: int, to: Tensor) -> None:
        rows, run = to.shape
        size = to.element_size()
        flat = torch.frombuffer(self._memory(opened), dtype=to.dtype, offset=start)
        to.copy_(flat.as_strided((rows, run), (stride // size, 1)))

    # Computation runs when its result is requested.

    def computed(self) -> bytes:
        return self.record(0)()

    def record(self, which: int) -> Callable[..., bytes]:
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

    def find(self, event: bytes) -> Callable[[], None]:
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

    def wait_to_compute(self, event: bytes) -> None:
        self.find(event)()


class Launching:
    """The functions of `gt._kernels.Cuda` that collectives call, in the thread of one queue."""

    def __init__(self, played: Played, mode: str) -> None:
        library = os.environ["PLAYED_DRIVER"]
        self._cuda, self._driver = native.Cuda(library, IMAGES), driver_of(library)
        self._driver.stand_in_steps_max.argtypes = [ctypes.c_uint64]
        self._driver.stand_in_steps_max(STEPS_MAX)
        self._played, self._known = played, set()
        self._log = pathlib.Path(os.environ["PLAYED_LOG"])
        self._lives = int(mode.removeprefix("dies:")) if mode.startswith("dies:") else -1

    def device(self) -> CudaDevice:
        """The played one, as kernels take it."""
        return CudaDevice(self, CPU, lambda name, tensor, dtype: tensor.data_ptr(), lambda: 0)  # type: ignore[arg-type]

    def collective(self, name: str, *arguments: object) -> None:
        for address, size in self._played.memories():
            if address not in self._known:
                where = (ctypes.c_void_p(address), ctypes.c_size_t(size), 0, True)
                self._driver.stand_in_add(b"memory", *where)
                self._known.add(address)
        self._lives -= 1
        if self._lives == 0:
            self._driver.stand_in_steps_max(DIES_AFTER)
            with contextlib.suppress(native.CudaError):
                self._cuda.collective(name, *arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        self._cuda.collective(name, *arguments)
        with self._log.open("a", encoding="ascii") as log:
            log.write(name + "\n")


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
    mode = os.environ.get("PLAYED", "")
    device = Played(mode)
    host = _HOST
    meeting = None
    if config.own_kernels() == "on":
        seconds = float(os.environ.get("PLAYED_SECONDS", "60"))
        meeting = DeviceKernels(
            device, CudaCollectives(Launching(device, mode).device(), sizes(seconds))
        )

    def away(kernel: Callable[..., object]) -> Callable[..., object]:
        return lambda *arguments: device.home(kernel(*arguments))

    played = dataclasses.replace(
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
    )
    return kernels.with_devices(played, Devices(device, meeting))


if __name__ == "__main__":
    os.environ["GT_ATEN"] = "off"  # ATen in C++ would make results in the host's own memory
    kernels.backend = backend
    sys.exit(__main__.main())
