"""Several workers forked and watched by one process that imports their modules once.

They start in about the time of one. The process that forks computes nothing, reports each worker
that has died with its last words, starts another in its place where it supervises, and ends with
the last worker. fork_server.py forks for an embedded dispatcher, which asks for one worker at a
time.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence

from gt import config
from gt.launch import watch
from gt.worker import forking, startup

JOINED = re.compile(r"gt\.worker: worker (\d+) has joined ")
# Workers that are replaced in that time; more is no accident, and would go on for ever.
REPLACED_MAX = 20
REPLACED_SECONDS = 60.0
# Time for the dispatcher to notice that a place is empty: at once on its own host, and over TCP
# when the broken link was not resumed.
PLACE_SECONDS = 30.0


class Forked:
    """A forked child in the form of a process that can be watched."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


def starts(start: startup.Start, count: int) -> list[startup.Start]:
    """Settings of each worker: neighbouring indexes, GPUs of this host in turn, a share of its
    cores.
    """
    threads = start.threads or max(1, config.core_count() // count)
    return [
        dataclasses.replace(
            start,
            index=None if start.index is None else start.index + place,
            gpu=(start.gpu or 0) + place,
            threads=threads,
        )
        for place in range(count)
    ]


def run(
    start: startup.Start, count: int, *, ends_with_input: bool, supervises: bool = False
) -> int:
    """Serves as a worker in each child; watches them in the parent.

    Args:
        start: settings of the workers without index, GPU and threads.
        count: number of workers.
        ends_with_input: True ends all workers with standard input, for a program at the other end
            of a connection.
        supervises: True starts another worker in the place of one that has joined and then dies.

    Returns: the exit status of a worker, in its child. The parent exits here, with that of the
        first worker that ended badly, else 0.

    Raises:
        StartError: this machine lacks something that was asked for.
    """
    start = dataclasses.replace(start, is_supervised=supervises)
    children = starts(start, count)
    is_ready = forking.is_ready(start.backend, children[0].threads)
    # The thread that reads standard input would not survive a later fork.
    family = _Family(count, supervises=supervises, forks_later=is_ready and not ends_with_input)
    if not is_ready:
        family.start_each(children)
    elif (own := family.fork(children)) is not None:
        return startup.run(own)
    with watch.on_signal(family.stop, signal.SIGTERM, signal.SIGHUP):
        if ends_with_input:
            watch.end_with_input()
        status = family.watch()
    if isinstance(status, startup.Start):
        return startup.run(status)
    sys.stderr.flush()
    os._exit(status)  # ending an interpreter that has imported torch takes a second


class _Family:
    """The workers of one parent.

    Args:
        count: number of workers.
        supervises: True starts another worker in the place of one that dies.
        forks_later: True starts that one by a fork, which needs no imports.
    """

    def __init__(self, count: int, *, supervises: bool, forks_later: bool) -> None:
        self._watch = watch.Watch(self._tell)
        self._missing = count  # workers that have not joined yet
        self._is_stopping = False
        self._supervises = supervises
        self._forks_later = forks_later
        self._children: dict[str, startup.Start] = {}
        self._indexes: dict[str, int] = {}  # of those that have joined
        self._replaced: deque[float] = deque()

    def fork(self, children: Sequence[startup.Start]) -> startup.Start | None:
        """Forks all; returns a child's settings in it, and None in the parent."""
        for number, child in enumerate(children):
            if self._forked(_name(child, number), child):
                return child
        return None

    def _forked(self, name: str, child: startup.Start) -> bool:
        """Forks one; returns true in the child."""
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.dup2(writer, sys.stderr.fileno())
            os.close(writer)
            self._watch.forget()
            return True
        os.close(writer)
        self._children[name] = child
        self._watch.add(name, Forked(pid), reader)
        return False

    def start_each(self, children: Sequence[startup.Start]) -> None:
        """Starts a process for each worker, without forking."""
        for number, child in enumerate(children):
            self._start(_name(child, number), child)

    def _start(self, name: str, child: startup.Start) -> None:
        process = subprocess.Popen(_command(child), stderr=subprocess.PIPE)
        assert process.stderr is not None
        self._children[name] = child
        self._watch.add(name, process, os.dup(process.stderr.fileno()))
        process.stderr.close()

    def watch(self) -> int | startup.Start:
        """Returns when all have ended: 0, or the status of the first one that ended badly; in the
        child that takes the place of one, returns its settings.
        """
        status = 0
        while self._watch.processes:
            for ended in self._watch.step():
                if not ended.code or self._is_stopping:
                    continue
                sys.stderr.write(f"gt.worker: {ended.sentence()}\n")
                if (successor := self._successor(ended.label)) is not None:
                    sys.stderr.write(f"gt.worker: another takes the place of {ended.label}\n")
                    sys.stderr.flush()
                    if not self._forks_later:
                        self._start(ended.label, successor)
                    elif self._forked(ended.label, successor):
                        return successor
                    continue
                status = status or (ended.code if ended.code > 0 else 128 - ended.code)
                if self._missing > 0:  # without it nobody waits for the others
                    self.stop(signal.SIGTERM)
        return status

    def _successor(self, name: str) -> startup.Start | None:
        """Settings of the worker that takes the place of one that has died.

        None for one that had not joined, and where too many have died: the next would too.
        """
        index = self._indexes.pop(name, None)
        now = time.monotonic()
        while self._replaced and now - self._replaced[0] > REPLACED_SECONDS:
            self._replaced.popleft()
        if not self._supervises or index is None or len(self._replaced) >= REPLACED_MAX:
            return None
        self._replaced.append(now)
        child = self._children[name]
        return dataclasses.replace(child, index=index, place_seconds=PLACE_SECONDS)

    def stop(self, number: int) -> None:  # noqa: ARG002 - a signal handler's
        """Ends all."""
        self._is_stopping = True
        for watched in self._watch.processes:
            watch.send(watched.process, signal.SIGTERM)

    def _tell(self, label: str, line: str) -> None:
        if joined := JOINED.match(line):
            self._missing -= 1
            self._indexes[label] = int(joined[1])
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _name(child: startup.Start, number: int) -> str:
    return f"started worker {number}" if child.index is None else f"worker {child.index}"


def _command(child: startup.Start) -> list[str]:
    """The command line of one worker; environment variables give the other settings."""
    words = [sys.executable, "-m", "gt.worker", "--backend", child.backend]
    words += ["--threads", str(child.threads), "--gpu", str(child.gpu)]
    words += [] if child.index is None else ["--id", str(child.index)]
    words += [] if child.rings else ["--tcp"]
    words += ["--place-seconds", str(child.place_seconds)] if child.place_seconds else []
    words += ["--is-supervised"] if child.is_supervised else []
    words += ["--process-groups", child.process_groups]
    words += [word for one in child.trusted_networks for word in ("--trusted-network", one)]
    if child.unix is not None:
        return [*words, "--unix", child.unix]
    return [*words, "--host", child.host, "-p", str(child.port)]
