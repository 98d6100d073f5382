"""A dispatcher with workers in separate processes, as a person starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WAIT_SECONDS = 20.0


def environment() -> dict[str, str]:
    """Environment of processes that must import the gt of this checkout from any folder."""
    root = str(Path(__file__).resolve().parent.parent)
    path = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}


@contextmanager
def cluster(workers: int = 1, *arguments: str, prices: Path | None = None) -> Iterator[str]:
    """Yields the address of a `gt-dispatcher` with workers, which get the arguments."""
    with dispatcher(workers, *arguments, prices=prices) as (address, _):
        yield address


@contextmanager
def dispatcher(
    workers: int = 1, *arguments: str, prices: Path | None = None
) -> Iterator[tuple[str, int]]:
    """Yields the address and the process id of a dispatcher with workers."""
    options = ["--prices", str(prices)] if prices else []
    server = _start("gt.server", "--listen", "127.0.0.1:0", "--log-level", "error", *options)
    assert server.stdout is not None
    said = server.stdout.readline()  # "listening on 127.0.0.1:PORT"
    address = said.rsplit(" ", 1)[-1].strip()
    port = address.rsplit(":", 1)[-1]
    command = ["gt.worker", "--port", port, *arguments]
    processes = [_start(*command) for _ in range(workers)]
    try:
        yield address, server.pid
    finally:
        for process in (*processes, server):
            process.terminate()
            process.communicate(timeout=WAIT_SECONDS)


def _start(module: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
