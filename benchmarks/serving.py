"""Rows on processes and payloads: start-up, two clients on one worker, transfers of 100 MB."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch
from pairs import Round, Row, Sides, Target
from processes import WAIT_SECONDS, cluster, dispatcher, environment

import gt

ADDS = 20_000
CORE_THREAD = "gt-core"
FLOOD_ADDS = 400_000  # of the flooding client, so that it floods longer than the light client reads
LIGHT_READS = 200
LIGHT_PAUSE_SECONDS = 0.0005
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
def _client(address: str, adds: int = ADDS) -> Iterator[subprocess.Popen[str]]:
    script = Path(__file__).with_name("client.py")
    process = subprocess.Popen(
        [sys.executable, str(script), address, str(adds)],
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


def _core_seconds(pid: int) -> float:
    """CPU time of the thread that owns a dispatcher's core."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text(encoding="utf-8").strip() == CORE_THREAD:
            return int((task / "schedstat").read_text(encoding="utf-8").split()[0]) / 1e9
    raise LookupError(f"process {pid} has no thread {CORE_THREAD}")


def _core_rate(clients: list[subprocess.Popen[str]], pid: int) -> Round:
    """Million instructions a second of the core's own CPU time: an addition and a free each."""
    run_clients = _rate(clients)

    def run() -> float:
        before = _core_seconds(pid)
        run_clients()
        return 2 * ADDS * len(clients) / (_core_seconds(pid) - before) / 1e6

    return run


@contextmanager
def _core_of_two() -> Iterator[Sides]:
    with ExitStack() as stack:
        address, pid = stack.enter_context(dispatcher())
        clients = [stack.enter_context(_client(address)) for _ in range(2)]
        yield Sides(_core_rate(clients, pid), _core_rate(clients[:1], pid))


def _light_reads(flood: subprocess.Popen[str] | None, percent: int) -> Round:
    """Microseconds of a read of a new value, at a percentile, while another client floods."""

    def run() -> float:
        x = gt.ones(4)
        x.sum().item()
        if flood is not None:
            flood.stdin.write("go\n")
            flood.stdin.flush()
        times = []
        for _ in range(LIGHT_READS):
            start = time.perf_counter_ns()
            x.sum().item()
            times.append((time.perf_counter_ns() - start) / 1e3)
            time.sleep(LIGHT_PAUSE_SECONDS)
        if flood is not None:
            assert flood.stdout.readline(), f"client {flood.pid} ended: {flood.wait()}"
        return statistics.quantiles(times, n=100, method="inclusive")[percent - 1]

    return run


@contextmanager
def _light_user(percent: int) -> Iterator[Sides]:
    with cluster() as address, _client(address, FLOOD_ADDS) as flood:
        gt.connect(address)
        try:
            yield Sides(_light_reads(flood, percent), _light_reads(None, percent))
        finally:
            gt.disconnect()


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
        "dispatcher-core",
        "`gt-dispatcher`, two clients: instructions a second of its core's CPU time",
        "M/s",
        Target("figure", 2.5, at_least=True),
        _core_of_two,
        rounds=9,
        other="one client",
    ),
    Row(
        "light-read",
        "a light user's read beside a flooding one, p50",
        "µs",
        Target("figure", 40),
        lambda: _light_user(50),
        rounds=5,
        other="alone",
    ),
    Row(
        "light-read-p99",
        "the same, p99",
        "µs",
        Target("figure", 1000),
        lambda: _light_user(99),
        rounds=5,
        other="alone",
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
