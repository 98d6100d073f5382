"""`python gpu/calls.py`: small calls and copies of bytes on one GPU, GT beside PyTorch, in one run.

Run from benchmarks/ on a machine with a GPU. The ratio is GT's time over PyTorch's: below 1, GT is
faster.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

import gt

CHAIN = 2000
READS = 500
UPLOAD_BYTES = 100_000_000


class Row(NamedTuple):
    """A measurement: its name, its unit, and a round of one side, which returns its figure."""

    name: str
    unit: str
    round: Callable[[ModuleType, str | None], float]


def _timed(work: Callable[[], object], scale: float) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * scale


def chain(library: ModuleType, device: str | None) -> float:
    """Additions, each of the one before, and the read."""
    x = library.ones(64, 64, **_at(device))
    x.sum().item()

    def work() -> float:
        y = x
        for _ in range(CHAIN):
            y = y + x
        return y.sum().item()

    return _timed(work, 1e6 / CHAIN)


def elementwise(library: ModuleType, device: str | None) -> float:
    """Twelve elementwise operators on 16 M numbers."""
    x = library.full((1 << 24,), 0.5, **_at(device))
    x.sum().item()

    def work() -> float:
        for _ in range(10):
            y = ((x * 2 + 1).relu() - x).tanh() * x
            y = (y.sigmoid() * y + x).exp() * 0.5 - y
        return y[0].item()

    return _timed(work, 1e2)


def item(library: ModuleType, device: str | None) -> float:
    """Reads of one number that is there."""
    x = library.ones((), **_at(device))

    def work() -> None:
        for _ in range(READS):
            x.item()

    work()
    return _timed(work, 1e6 / READS)


def add_item(library: ModuleType, device: str | None) -> float:
    """Reads of a sum."""
    x = library.ones((), **_at(device))

    def work() -> None:
        for _ in range(READS):
            (x + 1).item()

    work()
    return _timed(work, 1e6 / READS)


def upload(library: ModuleType, device: str | None) -> float:
    """100 MB from numpy, until the device has them."""
    data = np.ones(UPLOAD_BYTES // 4, np.float32)

    def work() -> float:
        made = library.from_numpy(data)
        return (made if device is None else made.to(device))[-1].item()

    work()
    return _timed(work, 1e3)


def download(library: ModuleType, device: str | None) -> float:
    """100 MB to numpy."""
    x = library.ones(UPLOAD_BYTES // 4, **_at(device))

    def work() -> object:
        return (x if device is None else x.cpu()).numpy()

    work()
    return _timed(work, 1e3)


def _at(device: str | None) -> dict[str, str]:
    return {} if device is None else {"device": device}


ROWS = [
    Row("chain of 2,000 additions, each", "us", chain),
    Row("12 elementwise operators on 16 M", "ms", elementwise),
    Row("item()", "us", item),
    Row("(x + 1).item()", "us", add_item),
    Row("upload of 100 MB", "ms", upload),
    Row("download of 100 MB", "ms", download),
]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    given = arguments.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: nothing is measured")
    gt.gpu_workers(1)
    print("| what | GT | PyTorch | ratio |\n|---|---:|---:|---:|")
    for row in ROWS:
        sides: list[list[float]] = [[], []]
        for turn in range(given.rounds + 1):
            for side, (library, device) in enumerate(((gt, None), (torch, "cuda"))):
                figure = row.round(library, device)
                if turn:
                    sides[side].append(figure)
        ours, theirs = map(statistics.median, sides)
        figures = f"{ours:.4g} {row.unit} | {theirs:.4g} {row.unit} | {ours / theirs:.2f}"
        print(f"| {row.name} | {figures} |", flush=True)
    print(gt.debug.get_worker_stats()[0])


if __name__ == "__main__":
    main()
