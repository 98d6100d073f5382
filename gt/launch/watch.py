"""Supervision of processes: their output line by line, and their ends at once, with the last lines.

Only the standard library is used, and nothing here depends on the kind of process: workers, engines
or programs.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

LOOK_SECONDS = 0.25  # for an end that closes no pipe, as a grandchild holds it
LINES_MAX = 12  # number of last lines: the end of a traceback
LINE_BYTES_MAX = 4096  # a longer line is cut, so that output without newlines fills no memory
READ_BYTES = 65536
PATIENCE_SECONDS = 10.0  # between a request to end and SIGKILL


class Process(Protocol):
    """A process, with the interface of `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Process id."""

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""


@dataclass(kw_only=True)
class Watched:
    """One process, and its last lines of output.

    One that is followed leads a group: if a signal ends it, another process of the group may go
    on in its place, and is there as long as the output is open.
    """

    label: str
    process: Process
    pipes: set[int]
    is_followed: bool = False
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES_MAX))
    rests: dict[int, bytes] = field(default_factory=dict)

    def code(self) -> int | None:
        """The exit code; None while it runs, or another process in its place."""
        code = self.process.poll()
        return None if code is not None and self._may_be_followed(code) else code

    def send(self, number: signal.Signals) -> None:
        """Send a signal to whoever runs."""
        code = self.process.poll()
        if code is not None and self._may_be_followed(code):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
        else:
            send(self.process, number)

    def _may_be_followed(self, code: int) -> bool:
        return self.is_followed and code < 0 and bool(self.pipes)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of one process: its exit code and its last words."""

    label: str
    pid: int
    code: int
    last_words: tuple[str, ...]

    def sentence(self) -> str:
        """For a person: label, kind of end, and the last lines, indented."""
        text = f"{self.label} (process {self.pid}) has ended {manner(self.code)}"
        if not self.last_words:
            return f"{text}, without a word"
        return "\n    ".join([f"{text}; its last words:", *self.last_words])


def manner(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"with status {code}"
    with contextlib.suppress(ValueError):
        return f"by {signal.Signals(-code).name}"
    return f"by signal {-code}"


class Watch:
    """Processes that are watched together.

    Args:
        on_line: called with each line and the label of its process.
    """

    def __init__(self, on_line: Callable[[str, str], None]) -> None:
        self._on_line = on_line
        self._selector = selectors.DefaultSelector()
        self.processes: list[Watched] = []

    def add(self, label: str, process: Process, *pipes: int, is_followed: bool = False) -> Watched:
        """Watch one more process; its output comes from descriptors that this closes at
        their end.
        """
        watched = Watched(label=label, process=process, pipes=set(pipes), is_followed=is_followed)
        for pipe in pipes:
            os.set_blocking(pipe, False)
            self._selector.register(pipe, selectors.EVENT_READ, watched)
        self.processes.append(watched)
        return watched

    def step(self, seconds: float = LOOK_SECONDS) -> list[Ended]:
        """Wait for a line or an end, at most that long; returns the processes that have ended."""
        if self._selector.get_map():
            for key, _ in self._selector.select(seconds):
                self._read(key.data, key.fd)
        else:
            time.sleep(seconds)
        return [
            self._end(watched, code)
            for watched in tuple(self.processes)
            if (code := watched.code()) is not None
        ]

    def stop(self, seconds: float = PATIENCE_SECONDS) -> list[Ended]:
        """Ask all that run to end, wait, and kill those that stay; returns how each ended."""
        ended: list[Ended] = []
        for number in (signal.SIGTERM, signal.SIGKILL):
            for watched in self.processes:
                watched.send(number)
            ended += self.wait(seconds)
        return ended

    def wait(self, seconds: float) -> list[Ended]:
        """Wait until all have ended, at most that long; returns those that have."""
        ended: list[Ended] = []
        deadline = time.monotonic() + seconds
        while self.processes and (left := deadline - time.monotonic()) > 0:
            ended += self.step(min(left, LOOK_SECONDS))
        return ended

    def forget(self) -> None:
        """Forget all processes: in a forked child, which watches none."""
        self._selector.close()
        for watched in self.processes:
            for pipe in watched.pipes:
                os.close(pipe)
        self.processes = []

    def _read(self, watched: Watched, pipe: int) -> bool:
        """Read the available output; returns whether there was any."""
        try:
            data = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close(watched, pipe)
            return False
        *lines, rest = (watched.rests.get(pipe, b"") + data).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            lines, rest = [*lines, rest], b""
        watched.rests[pipe] = rest
        for line in lines:
            self._tell(watched, line)
        return True

    def _tell(self, watched: Watched, line: bytes) -> None:
        text = line[:LINE_BYTES_MAX].decode("utf-8", "replace").rstrip()
        watched.lines.append(text)
        self._on_line(watched.label, text)

    def _close(self, watched: Watched, pipe: int) -> None:
        if rest := watched.rests.pop(pipe, b""):
            self._tell(watched, rest)
        self._selector.unregister(pipe)
        watched.pipes.discard(pipe)
        os.close(pipe)

    def _end(self, watched: Watched, code: int) -> Ended:
        for pipe in tuple(watched.pipes):
            while pipe in watched.pipes and self._read(watched, pipe):
                pass
            if pipe in watched.pipes:  # another process holds its other end
                self._close(watched, pipe)
        self.processes.remove(watched)
        words = tuple(line for line in watched.lines if line)
        return Ended(label=watched.label, pid=watched.process.pid, code=code, last_words=words)


def send(process: Process, number: signal.Signals) -> None:
    """Send a signal to a process and to the group that it leads, if it leads one."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)


def end_with_input() -> None:
    """Make this process receive SIGTERM when its standard input ends.

    The process that started it holds the other end, so this one cannot outlive it.
    """
    threading.Thread(target=_read_to_end, args=(sys.stdin.fileno(),), daemon=True).start()


def _read_to_end(descriptor: int) -> None:
    while os.read(descriptor, READ_BYTES):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def on_signal(handler: Callable[[int], None], *numbers: signal.Signals) -> Iterator[None]:
    """Call the handler for these signals inside the block; programs started there have defaults.

    An ignored signal stays ignored, as under `nohup`.
    """
    before = {
        number: signal.signal(number, lambda received, _frame: handler(received))
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
