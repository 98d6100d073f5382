"""The head of a launch: dispatcher, the commands that start workers, and the program, as processes.

An engine says which commands; here they are started, watched and ended, and nobody is left. Who
dies before all have joined ends the launch, since the program would wait; later deaths are told.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from gt import config
from gt.launch import watch
from gt.launch.engine import EVERYWHERE, LOOPBACK, Attached, Command, LaunchError, Plan

LISTENING = "listening on "
# Lines of the dispatcher's log. The names in them come from users, so only the text around counts.
JOINED = re.compile(r"\b(?:INFO|WARN) worker (\d+) \(.*\) is connected")
GONE = re.compile(r"\bWARN worker (\d+) is gone")
QUIET = re.compile(r" (?:INFO|DEBUG) |^gt\.worker: worker \d+ has joined ")
USER = "launch"
DISPATCHER = "the dispatcher"
FOLLOWS_SECONDS = 3.0  # time for workers to end after their dispatcher


class EarlyEndError(LaunchError):
    """A process has ended too early; the message has its last words."""


class Head:
    """One launch.

    Args:
        plan: plan of the launch; its address may have port 0, for a free one.
        engine: engine that starts the workers.
        join_seconds: time for all of them to join; None for no limit.
        address_file: file for address and token, written when all have joined.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Attached,
        *,
        join_seconds: float | None,
        address_file: Path | None,
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._join_seconds = join_seconds
        self._address_file = address_file
        self._is_verbose = config.is_verbose()
        self._joined: set[str] = set()
        self._watch = watch.Watch(self._on_line)
        self._dispatcher: watch.Watched | None = None
        self._program: subprocess.Popen[bytes] | None = None
        self._own_token = config.token()
        self._token = self._own_token or secrets.token_hex(16)
        self._is_asked_to_end = False

    def run(self) -> int:
        """Returns the program's status when it has ended, or 0 when asked to end without one.

        Raises:
            LaunchError: a worker ended before all had joined, or they took too long.
        """
        start = time.monotonic()
        numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        with (
            tempfile.TemporaryDirectory(prefix="gt-launch-") as folder,
            watch.on_signal(self._on_signal, *numbers),
        ):
            try:
                self._start_dispatcher(Path(folder))
                for command in self._engine.commands(self._plan):
                    self._start(command)
                self._wait_for_workers(start)
                return self._run_program()
            except _Stopped:
                return 0
            finally:
                self._stop()

    def _start_dispatcher(self, folder: Path) -> None:
        tokens = self._token_file = folder / "tokens"
        tokens.touch(mode=0o600)
        tokens.write_text(f"{USER} {self._token}\n", encoding="utf-8")
        listen = LOOPBACK if self._plan.host == LOOPBACK else EVERYWHERE
        words = [sys.executable, "-m", "gt.server", "--host", listen, "-p", self._plan.port]
        process = subprocess.Popen(
            [*words, "--token-file", str(tokens), *self._plan.serving, "--end-with-input"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline().decode()
        if not first.startswith(LISTENING):
            process.terminate()
            raise LaunchError(process.stderr.read().decode("utf-8", "replace").strip())
        self._dispatcher = self._watch.add(
            DISPATCHER, process, _taken(process.stderr), is_followed=self._plan.has_standby
        )
        port = first.strip().rpartition(":")[2]
        self._plan = dataclasses.replace(self._plan, address=f"{self._plan.host}:{port}")
        self._tell(f"dispatcher at {self._plan.address}", is_detail=True)

    def _start(self, command: Command) -> None:
        process = subprocess.Popen(
            command.words,
            env=self._environment(self._plan.environment),
            stdin=subprocess.PIPE if command.takes_token else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # its end is reported elsewhere
                process.stdin.write(f"{self._token}\n".encode())
                process.stdin.flush()
        assert process.stdout is not None
        self._watch.add(command.label, process, _taken(process.stdout))

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        settings = {"GT_ADDRESS": self._plan.address, "GT_TOKEN": self._token}
        return config.with_settings(**more, **settings)

    def _program_environment(self) -> dict[str, str]:
        """Environment of the program, which runs beside the dispatcher whatever address others
        have.
        """
        host = LOOPBACK if self._plan.host == EVERYWHERE else self._plan.host
        return self._environment({}) | {"GT_ADDRESS": f"{host}:{self._plan.port}"}

    def _wait_for_workers(self, start: float) -> None:
        wanted = self._plan.workers
        if not self._engine.commands(self._plan):
            token = "…" if self._own_token else f"$(cut -d' ' -f2 {self._token_file})"
            words = f"GT_TOKEN={token} GT_ADDRESS={self._plan.address} python -m gt.worker"
            self._tell(f"{wanted} workers are waited for: {words}")
        while len(self._joined) < wanted:
            self._look()
            for ended in self._watch.step():
                raise EarlyEndError(ended.sentence())
            waited = time.monotonic() - start
            if self._join_seconds is not None and waited > self._join_seconds:
                state = f"{len(self._joined)} of {wanted} workers have joined after {waited:.0f} s"
                raise LaunchError(f"{state}: see --join-seconds")
        waited = time.monotonic() - start
        self._tell(f"{wanted} workers have joined {self._plan.address} after {waited:.1f} s")
        if self._address_file is not None:
            write_secret(self._address_file, {"address": self._plan.address, "token": self._token})

    def _run_program(self) -> int:
        if self._plan.program:
            self._program = subprocess.Popen(self._plan.program, env=self._program_environment())
            self._watch.add("the program", self._program)
        while True:
            self._look()
            for ended in self._watch.step():
                if self._program is not None and ended.pid == self._program.pid:
                    return ended.code if ended.code >= 0 else 128 - ended.code
                if self._dispatcher is not None and ended.pid == self._dispatcher.process.pid:
                    raise EarlyEndError(ended.sentence())
                self._tell(ended.sentence())
                if self._program is None and len(self._watch.processes) == 1:
                    raise EarlyEndError("no worker is left")

    def _look(self) -> None:
        """Ends if requested, unless a program is left that must end first."""
        if self._is_asked_to_end and self._program is None:
            raise _Stopped

    def _on_signal(self, number: int) -> None:
        """Leaves Ctrl-C to the program, which receives it too; passes on a request to end, and
        repeats it.
        """
        if self._program is None:
            self._is_asked_to_end = True
        elif number == signal.SIGINT:
            return
        elif self._is_asked_to_end:
            self._program.kill()
        else:
            self._is_asked_to_end = True
            self._program.send_signal(number)

    def _stop(self) -> None:
        """Ends the dispatcher first: workers end with it, and it logs no lost worker."""
        if self._dispatcher is not None:
            self._dispatcher.send(signal.SIGTERM)
            self._is_verbose = False
        self._watch.wait(FOLLOWS_SECONDS)
        self._watch.stop()
        if self._address_file is not None:
            self._address_file.unlink(missing_ok=True)

    def _on_line(self, label: str, line: str) -> None:
        if label == DISPATCHER and (match := JOINED.search(line)):
            self._joined.add(match[1])
        elif label == DISPATCHER and (match := GONE.search(line)):
            self._joined.discard(match[1])
        if self._is_verbose or not QUIET.search(line):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    def _tell(self, text: str, *, is_detail: bool = False) -> None:
        if self._is_verbose or not is_detail:
            sys.stderr.write(f"gt launch: {text}\n")
            sys.stderr.flush()


class _Stopped(Exception):
    """The launch was asked to end."""


def write_secret(path: Path, facts: Mapping[str, str]) -> None:
    """Write facts as JSON that no other user can read; the file appears whole or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:  # mode 0600
        json.dump(facts, file)
    Path(file.name).replace(path)


def _taken(pipe: IO[bytes]) -> int:
    """The descriptor of a pipe, detached from the object that would close it."""
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    return descriptor
