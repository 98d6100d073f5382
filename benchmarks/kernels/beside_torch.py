"""What these programs share: a kernel of gt._kernels beside PyTorch's, timed in turns.

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
# PyTorch's threads spin for some milliseconds after a call, and would take a core from ours.
PAUSE_S = 0.02

Clock = Callable[[], float]


class Case(NamedTuple):
    """The same work by PyTorch and by a kernel of ours."""

    name: str
    work: float  # of one call
    torch: Callable[[], object]
    own: Callable[[int], object]  # of the most threads it may use
    unit: str = "FLOP"  # of `work`; or B: bytes that have to be read and written at least


def run(name: str, *arguments: object, threads: int = 1) -> tuple[Any, ...]:
    """The results of a kernel of the table; tensors for tensors, and numpy's arrays for those."""
    make = _array if isinstance(arguments[0], np.ndarray) else _tensor
    results = _kernels.run(name, arguments, make, threads, threads)
    assert results is not None, name
    return results


def _array(dtype: str, sizes: tuple[int, ...]) -> object:
    return np.empty(sizes, dtype)


def _tensor(dtype: str, sizes: tuple[int, ...]) -> object:
    return torch.empty(sizes, dtype=getattr(torch, dtype))


def seconds(call: Callable[[], object], clock: Clock, repeats: int) -> float:
    """What a call takes, as the mean of `repeats` after a first one."""
    if clock is not time.process_time:  # that is of one thread
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
        documentation: Of the program; its first line is what --help says.
        cases: Makes them; asked again for each number of threads.
        threads: How many threads each side may use; one with --cpu-time.
        first: Prints lines before all others, of so many rounds.
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
