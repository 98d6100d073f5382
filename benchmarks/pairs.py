"""Measuring GT beside PyTorch: interleaved rounds in one process, medians, ratio, the machine.

The modules of `rows.py` define the measurements; no figure ever fails a test.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

import gt

SPINNING_SECONDS = 0.03
CORES = 2  # for the whole system: shared by client, dispatcher and workers

TIMES = "\N{MULTIPLICATION SIGN}"

Round = Callable[[], float]  # one round; returns a figure in the row's unit


@dataclass(frozen=True)
class Sides:
    """One round of each side; the other side is PyTorch, unless the row says otherwise."""

    gt: Round
    other: Round


@dataclass(frozen=True)
class Target:
    """A bound on GT's figure, on its ratio to the other side's, or on their difference."""

    of: Literal["ratio", "figure", "difference"]
    bound: float
    at_least: bool = False

    def text(self, unit: str) -> str:
        sign = "≥" if self.at_least else "≤"
        return {
            "ratio": f"{sign} {self.bound:g} {TIMES}",
            "figure": f"{sign} {self.bound:g} {unit}",
            "difference": f"{sign} + {self.bound:g} {unit}",
        }[self.of]

    def is_met(self, result: Result) -> bool:
        value = {
            "ratio": result.ratio,
            "figure": result.gt,
            "difference": result.gt - result.other,
        }[self.of]
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True)
class Row:
    """One line of the table: the measurement, its number of rounds, and its target."""

    name: str
    what: str
    unit: str
    target: Target
    open: Callable[[], AbstractContextManager[Sides]]
    rounds: int = 15
    other: str = "torch"


@dataclass(frozen=True)
class Result:
    """The figures of every round on both sides."""

    row: Row
    gt_rounds: list[float]
    other_rounds: list[float]

    @property
    def gt(self) -> float:
        return statistics.median(self.gt_rounds)

    @property
    def other(self) -> float:
        return statistics.median(self.other_rounds)

    @property
    def ratio(self) -> float:
        return self.gt / self.other

    @property
    def spread(self) -> float:
        """Interquartile range over the median, of the noisier side."""
        return max(_spread(self.gt_rounds), _spread(self.other_rounds))


def measure(row: Row, rounds: int | None = None) -> Result:
    """Rounds of both sides in turn, so that disturbances of the machine affect both.

    The first pair is a warm-up and does not count.
    """
    with row.open() as sides:
        sides.other()
        sides.gt()
        pairs = [_pair(sides, turn) for turn in range(rounds or row.rounds)]
    return Result(row, [pair[0] for pair in pairs], [pair[1] for pair in pairs])


def _pair(sides: Sides, turn: int) -> tuple[float, float]:
    if turn % 2:
        figure = _alone(sides.gt)
        return figure, _alone(sides.other)
    other = _alone(sides.other)
    return _alone(sides.gt), other


def _alone(side: Round) -> float:
    """A round that begins when the other side's threads have gone to sleep.

    OpenMP's threads spin for milliseconds after PyTorch's last product, on the core that a worker
    needs; a program that uses only one of the two libraries never has this.
    """
    time.sleep(SPINNING_SECONDS)
    return side()


def _spread(rounds: list[float]) -> float:
    if len(rounds) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(rounds, n=4, method="inclusive")
    return (high - low) / middle


@contextmanager
def on_cores(count: int = CORES) -> Iterator[None]:
    """Restricts this process and its children to a number of cores."""
    cores = os.sched_getaffinity(0)
    gt.disconnect()  # workers started by an earlier test have other cores
    os.sched_setaffinity(0, sorted(cores)[:count])
    try:
        yield
    finally:
        gt.disconnect()
        os.sched_setaffinity(0, cores)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Sets the number of computing threads on each side; None keeps the defaults."""
    before = torch.get_num_threads(), os.environ.pop("GT_THREADS", None)
    gt.disconnect()  # running workers have another number of threads
    if count is not None:
        os.environ["GT_THREADS"] = str(count)
    torch.set_num_threads(count or min(before[0], len(os.sched_getaffinity(0))))
    try:
        yield
    finally:
        gt.disconnect()
        torch.set_num_threads(before[0])
        os.environ.pop("GT_THREADS", None)
        if before[1] is not None:
            os.environ["GT_THREADS"] = before[1]


def machine() -> str:
    """Processor, cores, kernel and versions."""
    parts = [
        _processor(),
        f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores",
        f"{platform.system()} {platform.release()}",
        f"Python {platform.python_version()}",
        f"torch {torch.__version__}",
    ]
    return ", ".join(parts)


def load() -> str:
    """Load average of the last minute: the load from other programs."""
    return f"{os.getloadavg()[0]:.1f}"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
