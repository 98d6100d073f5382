"""A training step over a sequence, by its length, beside PyTorch: shows how costs grow.

`loop`: h = cell(x[t], h) for each t; `lstm`: a layer. Medians of a step, forward and backward, one
thread a side. Run by hand (`python recurrence.py`); figures are in RESULTS.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from types import ModuleType

import torch

import gt

BATCH, INPUT, HIDDEN = 8, 32, 32


def loop(library: ModuleType, length: int) -> Callable[[], float]:
    """A plain loop over the first dimension of a leaf."""
    x = library.ones(length, BATCH, INPUT, requires_grad=True)
    cell = library.nn.RNNCell(INPUT, HIDDEN)

    def step() -> float:
        h = library.zeros(BATCH, HIDDEN)
        for t in range(length):
            h = cell(x[t], h)
        h.sum().backward()
        return float(x.grad[0, 0, 0].item())

    return step


def lstm(library: ModuleType, length: int) -> Callable[[], float]:
    """One layer over the sequence."""
    x = library.ones(length, BATCH, INPUT, requires_grad=True)
    layer = library.nn.LSTM(INPUT, HIDDEN)

    def step() -> float:
        layer(x)[0].sum().backward()
        return float(x.grad[0, 0, 0].item())

    return step


def milliseconds(step: Callable[[], float], rounds: int) -> float:
    """The median of `rounds` steps after a first one."""
    step()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--lengths", type=int, nargs="*", default=[100, 200, 400])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| step | T | GT ms | PyTorch ms | ratio |\n|---|---:|---:|---:|---:|")
    for program in (loop, lstm):
        for length in options.lengths:
            ours = milliseconds(program(gt, length), options.rounds)
            its = milliseconds(program(torch, length), options.rounds)
            row = f"| {program.__name__} | {length} | {ours:.1f} | {its:.1f} | {ours / its:.1f} |"
            print(row, flush=True)


if __name__ == "__main__":
    main()
