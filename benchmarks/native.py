"""A training step on a worker of GT's own kernels (GT_BACKEND=native) beside eager PyTorch.

    taskset -c 0,1 python native.py --rounds 7

Each model trains with the same code under both libraries, one thread each, in turns: medians of
rounds of 20 steps and a read. In the third column GT computes with PyTorch's kernels.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable
from types import ModuleType

os.environ["GT_THREADS"] = "1"

import torch

import gt

STEPS = 20


def mlp(library: ModuleType, sizes: tuple[int, ...]) -> tuple[object, Callable[[], object]]:
    """Linear layers with relu between them."""
    layers: list[object] = []
    for inner, outer in itertools.pairwise(sizes):
        layers += [library.nn.Linear(inner, outer), library.nn.ReLU()]
    model = library.nn.Sequential(*layers[:-1])
    x, y = library.rand(64, sizes[0]), library.arange(64) % sizes[-1]
    return model, lambda: library.nn.functional.cross_entropy(model(x), y)


def cnn(library: ModuleType) -> tuple[object, Callable[[], object]]:
    """Two convolutions over 28 x 28, batch 64."""
    nn = library.nn
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 10),
    )  # fmt: skip
    x, y = library.rand(64, 1, 28, 28), library.arange(64) % 10
    return model, lambda: nn.functional.cross_entropy(model(x), y)


PROGRAMS: dict[str, Callable[[ModuleType], tuple[object, Callable[[], object]]]] = {
    "digits: MLP 64-64-10, batch 64": lambda library: mlp(library, (64, 64, 10)),
    "MLP 784-512-512-10, batch 64": lambda library: mlp(library, (784, 512, 512, 10)),
    "CNN of two convolutions, batch 64": cnn,
}


def round_of(library: ModuleType, make: Callable[..., object]) -> Callable[[], float]:
    """A round of AdamW steps with a read after the last one; returns seconds of a step."""
    model, loss_of = make(library)  # type: ignore[misc]
    optimizer = library.optim.AdamW(model.parameters(), lr=1e-3)

    def run() -> float:
        start = time.perf_counter()
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of()
            loss.backward()
            optimizer.step()
        loss.item()
        return (time.perf_counter() - start) / STEPS

    return run


def measured(backend: str, make: Callable[..., object], rounds: int) -> tuple[float, float]:
    """Medians of GT's step on that backend and of PyTorch's, in turns."""
    os.environ["GT_BACKEND"] = backend
    sides = [round_of(gt, make), round_of(torch, make)]
    for side in sides:
        side()
    times = [[side() for side in sides] for _ in range(rounds)]
    gt.disconnect()
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    return ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| a step | native, us | PyTorch, us | ratio | GT with PyTorch's kernels, ratio |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, make in PROGRAMS.items():
        native, theirs = measured("native", make, options.rounds)
        ours, beside = measured("pytorch", make, options.rounds)
        ratios = f"{native / theirs:.2f} x | {ours / beside:.2f} x"
        print(f"| {name} | {native * 1e6:.0f} | {theirs * 1e6:.0f} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
