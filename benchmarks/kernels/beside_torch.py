"""Shared parts of these programs: a kernel of gt._kernels beside PyTorch's, timed in turns.

Rounds of both sides alternate; the median of each counts. No kernels here.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from gt import _kernels

ROUNDS, ROUND_S = 9, 0.03
# PyTorch's threads spin for some milliseconds after a call, and would take a core from GT's.
PAUSE_S = 0.02

Clock = Callable[[], float]


class Case(NamedTuple):
    """One computation by PyTorch and by a kernel of GT's."""

    name: str
    work: float  # in one call
    torch: Callable[[], object]
    own: Callable[[int], object]  # argument: the maximum number of threads
    unit: str = "FLOP"  # of `work`; or B: bytes that must be read and written at least


def run(name: str, *arguments: object, threads: int = 1) -> tuple[Any, ...]:
    """The results of a kernel of the table; torch tensors for tensors, numpy arrays for arrays."""
    make = _array if isinstance(arguments[0], np.ndarray) else _tensor
    results = _kernels.run(name, arguments, make, threads, threads)
    assert results is not None, name
    return results


def _array(dtype: str, sizes: tuple[int, ...]) -> object:
    return np.empty(sizes, dtype)


def _tensor(dtype: str, sizes: tuple[int, ...]) -> object:
    return torch.empty(sizes, dtype=getattr(torch, dtype))


def seconds(call: Callable[[], object], clock: Clock, repeats: int) -> float:
    """Seconds of a call, as the mean of `repeats` calls after a first one."""
    if clock is not time.process_time:  # processor time is measured on one thread
        time.sleep(PAUSE_S)
    call()
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def _medians(case: Case, threads: int, clock: Clock, rounds: int) -> list[float]:
    sides: list[Callable[[], object]] = [case.torch, lambda: case.own(threads)]
    sides[0]()
    repeats = max(1, int(ROUND_S / max(seconds(sides[1], clock, 1), 1e-7)))
    times = [[seconds(side, clock, repeats) for side in sides] for _ in range(rounds)]
    return [statistics.median(side) for side in zip(*times, strict=True)]


def _show(case: Case, threads: int, clock: Clock, rounds: int) -> None:
    torch_s, own_s = _medians(case, threads, clock, rounds)
    print(
        f"{case.name:52} {threads} thread{'s' * (threads > 1)}: {own_s * 1e6:9.1f} us"
        f" {case.work / own_s / 1e9:6.1f} G{case.unit}/s, torch {torch_s * 1e6:9.1f} us:"
        f" {torch_s / own_s:.2f} x as fast"
    )


def main(
    documentation: str | None,
    cases: Callable[[], Iterable[Case]],
    *,
    threads: Sequence[int] = (1, 2),
    first: Callable[[int], None] | None = None,
) -> None:
    """Prints a line for each case and number of threads.

    Args:
        documentation: docstring of the program; --help shows its first line.
        cases: creates the cases; called again for each number of threads.
        threads: numbers of threads for each side; one with --cpu-time.
        first: prints lines before all others, measured in the given number of rounds.
    """
    parser = argparse.ArgumentParser(description=(documentation or "").split("\n")[0])
    parser.add_argument("--cpu-time", action="store_true", help="of one thread")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    clock = time.process_time if asked.cpu_time else time.perf_counter
    with torch.inference_mode():
        if first is not None:
            first(asked.rounds)
        for count in (1,) if asked.cpu_time else threads:
            torch.set_num_threads(count)
            for case in cases():
                _show(case, count, clock, asked.rounds)
