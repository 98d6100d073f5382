"""Rows on processes and payloads: start-up, two clients on one worker, 100 MB there and back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch
from pairs import Round, Row, Sides, Target
from processes import WAIT_SECONDS, cluster, environment

import gt

ADDS = 20_000
MEGABYTES = 100


def _program(library: str) -> Round:
    command = [sys.executable, "-c", f"import {library} as lib; print(lib.randn(2, 2))"]

    def run() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment())
        return time.perf_counter() - start

    return run


@contextmanager
def _start_up() -> Iterator[Sides]:
    yield Sides(_program("gt"), _program("torch"))


@contextmanager
def _client(address: str) -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).with_name("client.py")
    process = subprocess.Popen(
        [sys.executable, str(script), address, str(ADDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield process
    finally:
        process.communicate(timeout=WAIT_SECONDS)


def _rate(clients: list[subprocess.Popen[str]]) -> Round:
    """Million additions a second of all clients together, until the last has its result."""

    def run() -> float:
        start = time.perf_counter()
        for client in clients:
            client.stdin.write("go\n")
            client.stdin.flush()
        for client in clients:
            said = client.stdout.readline()
            assert said, f"client {client.pid} ended: {client.wait()}"
        return ADDS * len(clients) / (time.perf_counter() - start) / 1e6

    return run


@contextmanager
def _two_clients() -> Iterator[Sides]:
    with ExitStack() as stack:
        address = stack.enter_context(cluster())
        clients = [stack.enter_context(_client(address)) for _ in range(2)]
        yield Sides(_rate(clients), _rate(clients[:1]))


def _milliseconds(action: Callable[[], object]) -> Round:
    def run() -> float:
        start = time.perf_counter()
        action()
        return (time.perf_counter() - start) * 1e3

    return run


@contextmanager
def _upload() -> Iterator[Sides]:
    data = np.ones(MEGABYTES * 1_000_000 // 4, dtype=np.float32)
    theirs = torch.from_numpy(data)

    def ours() -> None:
        tensor = gt.from_numpy(data)
        gt.synchronize()
        del tensor

    yield Sides(_milliseconds(ours), _milliseconds(theirs.clone))


@contextmanager
def _download() -> Iterator[Sides]:
    size = MEGABYTES * 1_000_000 // 4
    ours, theirs = gt.ones(size), torch.ones(size)
    yield Sides(_milliseconds(ours.numpy), _milliseconds(lambda: theirs.numpy().copy()))


ROWS = [
    Row(
        "start-up",
        "`python -c 'import gt; print(gt.randn(2, 2))'`",
        "s",
        Target("difference", 0.15),
        _start_up,
        rounds=7,
    ),
    Row(
        "two-clients",
        "two clients on one worker: adds together",
        "M/s",
        Target("ratio", 0.95, at_least=True),
        _two_clients,
        other="one client",
    ),
    Row(
        "upload",
        "upload 100 MB (5 GB/s)",
        "ms",
        Target("figure", 20),
        _upload,
        rounds=7,
        other="torch, one copy",
    ),
    Row(
        "download",
        "download 100 MB (5 GB/s)",
        "ms",
        Target("figure", 20),
        _download,
        rounds=7,
        other="torch, one copy",
    ),
]
