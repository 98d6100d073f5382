"""`python gpu/step.py`: an eager training step on the GPU, GT beside torch, in turn.

To be run from benchmarks/ on a machine with a GPU. The model is the same MLP in both; what is shown
are medians of milliseconds a step and their ratio.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from pairs import TIMES, load
from results import note, write

import gt

BEGIN = "<!-- gpu step: gpu/step.py writes from here -->"
END = "<!-- gpu step: to here -->"
HEAD = ["batch", "width", "GT, ms", "torch, ms", "ratio"]
LAYERS, STEPS = 6, 20
SHAPES = [(8, 256), (64, 1024), (1024, 2048), (4096, 4096)]


def step_of(
    library: object, batch: int, width: int, place: Callable[[object], object]
) -> Callable[[], None]:
    """Some steps of training, which have run when it returns."""
    nn = library.nn
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(width, width), nn.ReLU())]
    model = place(nn.Sequential(*layers))
    optimizer = library.optim.SGD(model.parameters(), lr=1e-3)
    x = place(library.randn(batch, width))

    def steps() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
        loss.item()

    return steps


def compare(batch: int, width: int, rounds: int) -> list[str]:
    """One line of the table."""
    sides = [
        step_of(gt, batch, width, lambda value: value),
        step_of(torch, batch, width, lambda value: value.cuda()),
    ]
    seconds: list[list[float]] = [[], []]
    for turn in range(rounds + 1):
        for side, steps in enumerate(sides):
            start = time.perf_counter()
            steps()
            if turn:  # the first warms up
                seconds[side].append((time.perf_counter() - start) / STEPS)
    ours, theirs = (statistics.median(one) * 1e3 for one in seconds)
    return [str(batch), str(width), f"{ours:.4g}", f"{theirs:.4g}", f"{ours / theirs:.3g} {TIMES}"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--markdown", action="store_true", help="write the table to RESULTS.md")
    given = arguments.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: nothing is measured")
    gt.gpu_workers(1)
    lines, before = [], load()
    for batch, width in SHAPES:
        lines.append(compare(batch, width, given.rounds))
        print(" | ".join(lines[-1]), flush=True)
    if given.markdown:
        said = note("python gpu/step.py --markdown", before, torch.cuda.get_device_name())
        write(lines, said, HEAD, (BEGIN, END))


if __name__ == "__main__":
    main()
