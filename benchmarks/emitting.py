"""Rows on single operators: emitting one, chains of them, reading a scalar."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from pairs import Round, Row, Sides, Target
from processes import cluster, environment

import gt

BURST = 2_000  # the ring is drained between bursts, so emitting never waits
BURSTS = 10
CHAIN = 10_000
HOT_READS = 1_000
IDLE_READS = 50
IDLE_SECONDS = 0.002

Tensor = gt.Tensor | torch.Tensor


def _bursts(x: Tensor, drain: Callable[[], None]) -> Round:
    """Microseconds in this thread's CPU time: no round waits, so pauses of a busy machine do not
    count.

    Elapsed time on a loaded machine would favour GT: its bursts end before the scheduler takes the
    core away, PyTorch's rounds do not.
    """

    def run() -> float:
        total = 0
        for _ in range(BURSTS):
            start = time.thread_time_ns()
            for _ in range(BURST):
                x + x
            total += time.thread_time_ns() - start
            drain()
        return total / (BURST * BURSTS)

    return run


@contextmanager
def _emit(*, tape: bool) -> Iterator[Sides]:
    ours, theirs = gt.ones(4, requires_grad=tape), torch.ones(4, requires_grad=tape)
    yield Sides(_bursts(ours, gt.synchronize), _bursts(theirs, lambda: None))


LAYOUTS = "layer: {workers: [0]}\n"


@contextmanager
def _emit_configured() -> Iterator[Sides]:
    """Both sides are GT: one with a configuration file loaded and a signal open, one without."""
    ours = _bursts(gt.ones(4), gt.synchronize)

    def configured() -> float:
        with gt.signal.context("layer"):
            return ours()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "layouts.yaml")
        path.write_text(LAYOUTS, encoding="utf-8")
        empty = Path(folder, "empty.yaml")
        empty.write_text("{}\n", encoding="utf-8")
        gt.load_config(str(path))
        try:
            yield Sides(configured, _without_layouts(ours, path, empty))
        finally:
            gt.load_config(str(empty))


def _without_layouts(plain: Round, path: Path, empty: Path) -> Round:
    def run() -> float:
        gt.load_config(str(empty))
        try:
            return plain()
        finally:
            gt.load_config(str(path))

    return run


VALUES = 1_000_000


def _held(library: str) -> Round:
    script = str(Path(__file__).with_name("held.py"))

    def run() -> float:
        command = [sys.executable, script, library, str(VALUES)]
        said = subprocess.run(command, check=True, capture_output=True, env=environment())
        return float(said.stdout)

    return run


@contextmanager
def _memory() -> Iterator[Sides]:
    yield Sides(_held("gt"), _held("torch"))


def _chain(x: Tensor) -> Round:
    def run() -> float:
        start = time.perf_counter_ns()
        y = x
        for _ in range(CHAIN):
            y = y + x
        last = y.sum().item()
        elapsed = time.perf_counter_ns() - start
        assert last == 4 * (CHAIN + 1), f"{last} after {CHAIN} additions"
        return elapsed / CHAIN

    return run


@contextmanager
def _chains() -> Iterator[Sides]:
    yield Sides(_chain(gt.ones(4)), _chain(torch.ones(4)))


@contextmanager
def _chains_through_dispatcher() -> Iterator[Sides]:
    with cluster() as address:
        gt.connect(address)
        try:
            yield Sides(_chain(gt.ones(4)), _chain(torch.ones(4)))
        finally:
            gt.disconnect()


def _reads(x: Tensor, *, count: int, pause_seconds: float) -> Round:
    value = (x + x).sum()  # computed by the worker: the client does not know the value

    def run() -> float:
        times = []
        for _ in range(count):
            if pause_seconds:
                time.sleep(pause_seconds)
            start = time.perf_counter_ns()
            value.item()
            times.append(time.perf_counter_ns() - start)
        return statistics.median(times) / 1e3

    return run


@contextmanager
def _reading(*, count: int, pause_seconds: float) -> Iterator[Sides]:
    ours = _reads(gt.ones(4), count=count, pause_seconds=pause_seconds)
    yield Sides(ours, _reads(torch.ones(4), count=count, pause_seconds=pause_seconds))


ROWS = [
    Row(
        "emit",
        "emit `x + x`, 4 elements, result dropped",
        "ns",
        Target("ratio", 0.14),
        lambda: _emit(tape=False),
    ),
    Row(
        "emit-tape",
        "the same with tape",
        "ns",
        Target("ratio", 0.16),
        lambda: _emit(tape=True),
    ),
    Row(
        "emit-configured",
        "emit with a file of layouts loaded and a signal open",
        "ns",
        Target("ratio", 1.2),
        _emit_configured,
        other="without",
    ),
    Row(
        "memory",
        "client's memory a live value, 1,000,000 of them, beside the Python object",
        "B",
        Target("figure", 100),
        _memory,
        rounds=3,
    ),
    Row("chain", "10,000 chained adds and the read, each", "ns", Target("ratio", 0.4), _chains),
    Row(
        "chain-dispatcher",
        "the same through `gt-dispatcher`",
        "ns",
        Target("ratio", 0.55),
        _chains_through_dispatcher,
    ),
    Row(
        "item-hot",
        "`item()` hot, p50",
        "µs",
        Target("figure", 1.5),
        lambda: _reading(count=HOT_READS, pause_seconds=0),
    ),
    Row(
        "item-idle",
        "`item()` after 2 ms idle, p50",
        "µs",
        Target("figure", 25),
        lambda: _reading(count=IDLE_READS, pause_seconds=IDLE_SECONDS),
    ),
]
