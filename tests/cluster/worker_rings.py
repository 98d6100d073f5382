"""The dispatcher's end of a worker process: rings of words, and the socket that hands them over.

For tests and benchmarks that say themselves what a worker executes. The forms are those of
crates/transport: sealed memory with a page of header, whose counters stand 128 bytes apart.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import platform
import select
import socket
import struct
import threading
import time

# The least that a worker takes, so that tests meet full rings.
RING_WORDS = 1 << 15
SLAB_BYTES = 4096 + 16 * 65_536
_HEADER_WORDS = 1024
_TAIL, _HEAD, _CONSUMER_PARKED, _PRODUCER_PARKED = 0, 32, 64, 96
_ON_FUTEX, _ON_EVENTFD = 1, 2
_SEALS = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW
_FUTEX, _FUTEX_WAKE = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0), 1
_SETUP, _PEER, _PEER_GONE = 1, 2, 3
_SPIN_SECONDS = 0.0001
_libc = ctypes.CDLL(None, use_errno=True)


def _sealed(name: str, length: int) -> int:
    memory = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, length)
    fcntl.fcntl(memory, getattr(fcntl, "F_ADD_SEALS", 1033), _SEALS)
    return memory


class _Ring:
    """One ring's memory: counters first, then the words."""

    def __init__(self) -> None:
        length = 4 * (_HEADER_WORDS + RING_WORDS)
        self.descriptor = _sealed("gt-ring", length)
        self._memory = mmap.mmap(self.descriptor, length)
        self._words = memoryview(self._memory).cast("I")
        self._barrier = threading.Lock()

    def counters(self) -> tuple[int, int]:
        """Words published and words taken, modulo 2**32."""
        return self._words[_TAIL], self._words[_HEAD]

    def advance(self, counter: int, count: int) -> None:
        self._words[counter] = (self._words[counter] + count) % 2**32

    def spans(self, counter: int, count: int) -> list[memoryview]:
        """The `count` words from a counter on: up to the end of the memory, and from its start."""
        start = counter % RING_WORDS
        first = min(count, RING_WORDS - start)
        words = self._words[_HEADER_WORDS:]
        return [words[start : start + first], words[: count - first]]

    def set_parked(self, how: int) -> None:
        self._words[_CONSUMER_PARKED] = how
        self._fence()

    def wake(self, parked: int, free: int) -> None:
        """Wakes the other side, if it sleeps at this word: a producer for so many `free` words."""
        self._fence()
        value = self._words[parked]
        wanted = value == _ON_FUTEX if parked == _CONSUMER_PARKED else 0 < value <= free
        if wanted:
            self._words[parked] = 0
            word = ctypes.c_uint32.from_buffer(self._memory, 4 * parked)
            address = ctypes.c_void_p(ctypes.addressof(word))
            assert _libc.syscall(_FUTEX, address, _FUTEX_WAKE, 64, None, None, 0) >= 0

    def _fence(self) -> None:
        """Orders earlier stores before later loads: a lock has both barriers."""
        with self._barrier:
            pass


class WorkerRings:
    """The dispatcher's side of one worker; its setup waits in the socket.

    Args:
        index: the worker's.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self._control, self._worker_end = socket.socketpair()
        self._words, self._answers = _Ring(), _Ring()
        self._eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        rings = [self._words.descriptor, self._answers.descriptor]
        self._send(_SETUP, index, [*rings, self._eventfd])
        for ring in rings:
            os.close(ring)

    def worker_fd(self) -> int:
        """The number of the worker's end of the socket, for the process that is to inherit it."""
        return self._worker_end.fileno()

    def hand_over(self) -> None:
        """Closes the worker's end here, once the process has it."""
        self._worker_end.close()

    def close(self) -> None:
        """Closes the control socket: the worker ends."""
        if self._control.fileno() >= 0:
            self._control.close()
            self._worker_end.close()
            os.close(self._eventfd)

    def introduce(self, other: WorkerRings) -> None:
        """Gives two workers slabs to each other."""
        there, back = _sealed("gt-slab", SLAB_BYTES), _sealed("gt-slab", SLAB_BYTES)
        self._send(_PEER, other.index, [there, back])
        other._send(_PEER, self.index, [back, there])
        os.close(there)
        os.close(back)

    def lost(self, index: int) -> None:
        """Says that the worker `index` is gone."""
        self._send(_PEER_GONE, index, [])

    def write(self, data: bytes) -> None:
        """Publishes words; waits while the ring is full."""
        words = memoryview(data).cast("I")
        while words:
            tail, head = self._words.counters()
            count = min(RING_WORDS - (tail - head) % 2**32, len(words))
            if count == 0:
                time.sleep(_SPIN_SECONDS)
                continue
            taken = 0
            for span in self._words.spans(tail, count):
                span[:] = words[taken : taken + len(span)]
                taken += len(span)
            self._words.advance(_TAIL, count)
            self._words.wake(_CONSUMER_PARKED, 0)
            words = words[count:]

    def read(self, timeout_ms: int) -> bytes:
        """The words that have come, at least one.

        Raises:
            TimeoutError: none came in time.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        spin_end = time.monotonic() + _SPIN_SECONDS
        while not (count := self._unread()):
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError(f"no answer in {timeout_ms} ms")
            if now > spin_end:
                self._sleep(deadline - now)
        data = b"".join(span.tobytes() for span in self._answers.spans(self._head(), count))
        self._answers.advance(_HEAD, count)
        self._answers.wake(_PRODUCER_PARKED, RING_WORDS - self._unread())
        return data

    def _unread(self) -> int:
        tail, head = self._answers.counters()
        return (tail - head) % 2**32

    def _head(self) -> int:
        return self._answers.counters()[1]

    def _sleep(self, seconds: float) -> None:
        self._answers.set_parked(_ON_EVENTFD)
        if not self._unread():
            select.select([self._eventfd], [], [], seconds)
        self._answers.set_parked(0)
        with contextlib.suppress(BlockingIOError):  # nothing came
            os.eventfd_read(self._eventfd)

    def _send(self, kind: int, index: int, descriptors: list[int]) -> None:
        record = struct.pack("<IIQ", kind, index, 0)
        assert socket.send_fds(self._control, [record], descriptors) == len(record)
