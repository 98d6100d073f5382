"""`gt.compile` beside the plain program, eager PyTorch and `torch.compile`: times of a step.

Rounds of the four are interleaved, one thread a side; a round is many steps and one read at its
end. Run by hand (`python compiled.py`); figures are in RESULTS.md. The first run waits for
compilers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

os.environ.setdefault("GT_THREADS", "1")
os.environ.setdefault("GT_COMPILE", "inductor")  # slower ones are shown too

import torch

import gt

Step = Callable[[], Any]
WAIT_SECONDS = 600.0  # for a worker's compiler


def chain(library: ModuleType, count: int) -> Step:
    """Twelve elementwise operators on so many numbers."""
    x = library.linspace(-1.0, 1.0, count)

    def step() -> Any:
        y = (x * 1.5 + 0.25).sin() * x - 0.5
        y = (y.abs() + 1.0).sqrt() / (x * x + 2.0)
        return (y.tanh() * 0.5).exp()

    return step


def network(library: ModuleType, batch: int) -> Step:
    """Loss and gradients of four layers of 64 with norms and GELU."""
    nn = library.nn
    library.manual_seed(0)
    layers: list[Any] = [nn.Linear(32, 64)]
    for _ in range(3):
        layers += [nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64)]
    model = nn.Sequential(*layers)
    x, y = library.ones(batch, 32), library.ones(batch, 64)
    parameters = list(model.parameters())

    def step() -> Any:
        for parameter in parameters:
            parameter.grad = None
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        return loss

    return step


def transformer(library: ModuleType, length: int) -> Step:
    """Loss and gradients of two encoder layers of 64, batch 6."""
    nn = library.nn
    library.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = library.ones(6, length, 64)
    parameters = list(model.parameters())

    def step() -> Any:
        for parameter in parameters:
            parameter.grad = None
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss

    return step


PROGRAMS: dict[str, tuple[Callable[[ModuleType, int], Step], int, int]] = {
    "chain-4k": (chain, 4_096, 200),
    "chain-1m": (chain, 1_000_000, 10),
    "network-8": (network, 8, 50),
    "network-256": (network, 256, 20),
    "transformer-12": (transformer, 12, 20),
    "transformer-64": (transformer, 64, 10),
}


def microseconds(step: Step, steps: int) -> float:
    """Time of a step in a round of them that ends with a read."""
    start = time.perf_counter()
    for _ in range(steps):
        last = step()
    last.sum().item()
    return (time.perf_counter() - start) / steps * 1e6


def wait_for_compiler(compiled: Any) -> None:
    """Calls a function until its programs are compiled."""
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        compiled().sum().item()
        words = [stage[1] for stage in compiled.region.stages()]
        if words and all(word in ("compiled", "refused") for word in words):
            return
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| program | GT us | compiled | PyTorch | torch.compile | by GT | by PyTorch | by it |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in options.programs:
        program, size, steps = PROGRAMS[name]
        compiled: Any = gt.compile(program(gt, size))
        wait_for_compiler(compiled)
        runs = [
            program(gt, size),
            compiled,
            program(torch, size),
            torch.compile(program(torch, size)),
        ]
        for run in runs:
            microseconds(run, 3)
        times = [[microseconds(run, steps) for run in runs] for _ in range(options.rounds)]
        plain, ours, eager, theirs = (
            statistics.median(column) for column in zip(*times, strict=True)
        )
        figures = f"{plain:.0f} | {ours:.0f} | {eager:.0f} | {theirs:.0f}"
        ratios = f"{ours / plain:.2f} | {ours / eager:.2f} | {ours / theirs:.2f}"
        print(f"| {name} | {figures} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
