"""Two network namespaces and the cable between them, which delays, loses and cuts as it is told.

Linux can do that by itself (`tc netem`), but not every kernel has it. Here each end is a TUN
device, and a thread carries packets from one to the other.
"""

import fcntl
import os
import random
import select
import shutil
import subprocess
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType

import pytest

PACKET_BYTES = 1 << 16
ADDRESSES = ("10.214.0.1", "10.214.0.2")
SET_INTERFACE = 0x400454CA  # TUNSETIFF
TUN_WITHOUT_HEAD = 0x1001  # IFF_TUN | IFF_NO_PI


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _device(name: str) -> int:
    """One end: a TUN device of that name, as a descriptor that does not block."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    request = name.encode().ljust(16, b"\0") + TUN_WITHOUT_HEAD.to_bytes(2, "little") + bytes(22)
    fcntl.ioctl(descriptor, SET_INTERFACE, request)
    return descriptor


class Cable:
    """Two namespaces, whose names are in `networks`, each with its address of `ADDRESSES`.

    Args:
        delay: seconds from one end to the other.
        loss: share of packets that get lost.
    """

    def __init__(self, delay: float = 0.0, loss: float = 0.0) -> None:
        if shutil.which("ip") is None or not Path("/dev/net/tun").exists():
            pytest.skip("there is no `ip` or no /dev/net/tun here to make network namespaces with")
        self.delay, self.loss = delay, loss
        self.networks = tuple(f"gt{os.getpid()}{end}" for end in "cd")
        self.carried = self.lost = 0
        self._random = random.Random(1)
        self._cut_until = 0.0
        self._ends: list[int] = []
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def cut(self, seconds: float) -> None:
        """Let nothing pass for so long from now."""
        self._cut_until = time.monotonic() + seconds

    def run(self, end: int, *words: str, **options: object) -> "subprocess.Popen[str]":
        """A process at one end, which leads a group of its own."""
        command = ["ip", "netns", "exec", self.networks[end], *words]
        return subprocess.Popen(command, text=True, start_new_session=True, **options)  # type: ignore[call-overload]

    def __enter__(self) -> "Cable":
        try:
            for network, address in zip(self.networks, ADDRESSES, strict=True):
                _ip("netns", "add", network)
                device = f"{network}t"
                self._ends.append(_device(device))
                _ip("link", "set", device, "netns", network)
                _ip("-n", network, "addr", "add", f"{address}/24", "dev", device)
                _ip("-n", network, "link", "set", "lo", "up")
                _ip("-n", network, "link", "set", device, "up")
        except (subprocess.CalledProcessError, OSError):
            self._remove()
            pytest.skip("network namespaces or TUN devices are not permitted here")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.write(self._stop_write, b".")
        self._thread.join()
        self._remove()

    def _remove(self) -> None:
        for descriptor in (*self._ends, self._stop_read, self._stop_write):
            os.close(descriptor)
        for network in self.networks:
            subprocess.run(["ip", "netns", "del", network], check=False, capture_output=True)

    def _carry(self) -> None:
        """Carry packets until the end: a queue of them, each with its time and its other end."""
        in_flight: deque[tuple[float, int, bytes]] = deque()
        while True:
            now = time.monotonic()
            while in_flight and in_flight[0][0] <= now:
                _, other, packet = in_flight.popleft()
                self._deliver(other, packet)
            wait = in_flight[0][0] - now if in_flight else None
            ready, _, _ = select.select([*self._ends, self._stop_read], [], [], wait)
            if self._stop_read in ready:
                return
            arrived = time.monotonic()
            for end in ready:
                packet = os.read(end, PACKET_BYTES)
                if self._loses(arrived):
                    self.lost += 1
                else:
                    in_flight.append(
                        (arrived + self.delay, self._ends[end == self._ends[0]], packet)
                    )

    def _loses(self, now: float) -> bool:
        return now < self._cut_until or self._random.random() < self.loss

    def _deliver(self, end: int, packet: bytes) -> None:
        try:
            os.write(end, packet)
            self.carried += 1
        except OSError:  # its queue is full: lost, as with a cable
            self.lost += 1
