"""The processes of a run: workers of this machine, or a dispatcher for workers of other
machines.
"""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import gt
from gt import config
from gt.errors import ConnectionLost, InvalidUse
from gt.guava import console

__all__ = ["Dispatcher", "join", "start_here", "workers_there"]

JOIN_SECONDS = 86_400.0  # people start workers, machine by machine
POLL_SECONDS = 0.05
USER = "guava"


def start_here(count: int) -> None:
    """Set the number of this program's workers on this machine.

    Raises:
        InvalidUse: The program has a session with another number of workers.
    """
    if not gt.is_connected():
        gt.gpu_workers(count)
        gt.init()
        gt.synchronize()
        return
    there = len(workers_there())
    if there != count:
        raise InvalidUse(
            f"Orchestrator: num_workers={count}, and this program has a session with {there}; "
            "gt.disconnect() ends it, with its tensors, or set num_workers to that"
        )


def workers_there() -> list[int]:
    """Indexes of the workers that have joined."""
    return [int(one["worker"]) for one in gt.debug.get_worker_stats()]


class Dispatcher:
    """A dispatcher in a process of its own; it ends with this program.

    Args:
        host: address on which it listens.
        port: port on which it listens; 0 takes a free one.
        options: further command-line options.

    Raises:
        ConnectionLost: It cannot listen there.
        InvalidUse: The program already has a session.
    """

    def __init__(self, host: str, port: int, options: Sequence[str] = ()) -> None:
        if gt.is_connected():
            raise InvalidUse(
                "Orchestrator: this program has a session already, whose tensors would be void; "
                "make the orchestrator before the first tensor of GT's, or call gt.disconnect()"
            )
        self._folder = tempfile.TemporaryDirectory(prefix="guava-")
        words = [
            sys.executable,
            "-m",
            "gt.guava.dispatcher",
            "--host",
            host,
            "-p",
            str(port),
            *options,
        ]
        self.token = None if _is_loopback(host) else config.token() or secrets.token_hex(16)
        if self.token is not None:
            words += ["--token-file", str(self._token_file(self.token))]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("listening on "):
            _, errors = self._process.communicate()
            self._folder.cleanup()
            raise ConnectionLost(
                f"Orchestrator: cannot listen on {host}:{port}: {errors.strip()}. master_ip is an "
                "address of this machine, master_port one that is free"
            )
        self.address = line.removeprefix("listening on ").strip()

    def close(self) -> None:
        """End the dispatcher, and thereby the workers."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self._folder.cleanup()

    def _token_file(self, token: str) -> Path:
        path = Path(self._folder.name) / "tokens"
        path.touch(mode=0o600)
        path.write_text(f"{USER} {token}\n", encoding="utf-8")
        return path


def join(dispatcher: Dispatcher, count: int) -> None:
    """Connect, wait until `count` workers have joined, and report how many there are."""
    host, _, port = dispatcher.address.rpartition(":")
    prefix = "" if dispatcher.token is None else f"GT_TOKEN={dispatcher.token} "
    console.say(f"listening on {dispatcher.address}; on each machine, once for each GPU:")
    console.say(
        f"  {prefix}python -m gt.guava.workers.network_worker --gpu-id 0 "
        f"--master-ip {host} --master-port {port}"
    )
    if dispatcher.token is not None:
        config.use_token(dispatcher.token)
    gt.connect(dispatcher.address, worker_seconds=JOIN_SECONDS)
    joined = -1
    while joined < count:
        now = len(gt.debug.get_worker_stats())
        if now != joined:
            joined = now
            console.say(f"{joined} of {count} workers have joined")
        else:
            time.sleep(POLL_SECONDS)


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(OSError):
        host = socket.gethostbyname(host)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
