"""Rows on training steps: forward, backward and optimizer of two perceptrons."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

import numpy as np
import torch
from pairs import Round, Row, Sides, Target

import gt
import gt.nn.functional
import gt.optim

SMALL = (32, 64, 64, 64, 10)
LARGE = (784, 512, 512, 10)
SEED = 0

Step = Callable[[], "gt.Tensor | torch.Tensor"]


def _model(lib: ModuleType, sizes: tuple[int, ...]) -> gt.nn.Sequential | torch.nn.Sequential:
    layers = []
    for wide, narrow in itertools.pairwise(sizes):
        layers += [lib.nn.Linear(wide, narrow), lib.nn.ReLU()]
    return lib.nn.Sequential(*layers[:-1])


def _inputs(sizes: tuple[int, ...], batch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(SEED)
    x = numbers.standard_normal((batch, sizes[0]), dtype=np.float32)
    y = numbers.standard_normal((batch, sizes[-1]), dtype=np.float32)
    return x, y, numbers.integers(0, sizes[-1], batch)


def _small(lib: ModuleType) -> Step:
    """Mean squared error and plain SGD: 52 operators with one instruction for each."""
    model = _model(lib, SMALL)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01)
    x, y, _ = (lib.from_numpy(array) for array in _inputs(SMALL, 8))

    def step() -> gt.Tensor | torch.Tensor:
        optimizer.zero_grad()
        loss = lib.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _large(lib: ModuleType, batch: int) -> Step:
    model = _model(lib, LARGE)
    optimizer = lib.optim.AdamW(model.parameters(), lr=1e-3)
    x, _, labels = (lib.from_numpy(array) for array in _inputs(LARGE, batch))

    def step() -> gt.Tensor | torch.Tensor:
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _memory_bound(lib: ModuleType) -> Step:
    """Cost of every large temporary: memory that is allocated, written and released."""
    x = lib.ones(25_000_000)

    def step() -> gt.Tensor | torch.Tensor:
        return (x * x + x)[0]

    return step


def _by_hand(lib: ModuleType, count: int) -> Step:
    """SGD with momentum and decay in separate operators, each one pass over memory."""
    weight, velocity, grad = (lib.linspace(-1, 1, count) * scale for scale in (1, 0.3, 0.01))

    def step() -> gt.Tensor | torch.Tensor:
        return (weight - 0.01 * (velocity * 0.9 + grad + weight * 1e-4))[0]

    return step


def _product(lib: ModuleType, size: int) -> Step:
    numbers = np.random.default_rng(SEED).standard_normal((2, size, size), dtype=np.float32)
    left, right = (lib.from_numpy(array) for array in numbers)
    return lambda: (left @ right)[0, 0]


def _steps(step: Step, count: int, unit_seconds: float) -> Round:
    def run() -> float:
        start = time.perf_counter()
        for _ in range(count):
            loss = step()
        loss.item()
        return (time.perf_counter() - start) / count / unit_seconds

    return run


@contextmanager
def sides(make: Callable[[ModuleType], Step], count: int, unit_seconds: float) -> Iterator[Sides]:
    ours, theirs = make(gt), make(torch)
    yield Sides(_steps(ours, count, unit_seconds), _steps(theirs, count, unit_seconds))


def _cpu(step: Step, count: int, drain: Callable[[], object]) -> Round:
    """Microseconds of this thread's CPU a step, in bursts that fit the ring; no round waits."""

    def run() -> float:
        total = 0
        for _ in range(count):
            start = time.thread_time_ns()
            step()
            total += time.thread_time_ns() - start
            drain()
        return total / count / 1e3

    return run


@contextmanager
def _client_alone() -> Iterator[Sides]:
    yield Sides(_cpu(_small(gt), 50, gt.synchronize), _cpu(_small(torch), 50, lambda: None))


ROWS = [
    Row(
        "mlp-8",
        "MLP 32-64-64-64-10, batch 8, SGD step",
        "µs",
        Target("ratio", 0.3),
        lambda: sides(_small, 100, 1e-6),
    ),
    Row(
        "mlp-8-client",
        "the same, the client's CPU alone",
        "µs",
        Target("ratio", 0.15),
        _client_alone,
    ),
    Row(
        "mlp-64",
        "MLP 784-512-512-10, batch 64, AdamW step",
        "ms",
        Target("ratio", 0.45),
        lambda: sides(lambda lib: _large(lib, 64), 10, 1e-3),
    ),
    Row(
        "mlp-1024",
        "the same, batch 1024",
        "ms",
        Target("ratio", 0.85),
        lambda: sides(lambda lib: _large(lib, 1024), 3, 1e-3),
        rounds=9,
    ),
    Row(
        "memory-bound",
        "`x * x + x` on 100 MB",
        "ms",
        Target("ratio", 1.0),
        lambda: sides(_memory_bound, 5, 1e-3),
        rounds=7,
    ),
    Row(
        "by-hand",
        "an update of 65,536 numbers written by hand, 6 elementwise operators",
        "µs",
        Target("ratio", 0.8),
        lambda: sides(lambda lib: _by_hand(lib, 1 << 16), 50, 1e-6),
    ),
    Row(
        "by-hand-large",
        "the same of 1,048,576 numbers",
        "µs",
        Target("ratio", 0.5),
        lambda: sides(lambda lib: _by_hand(lib, 1 << 20), 10, 1e-6),
    ),
    *(
        Row(
            f"product-{size}",
            f"a product of {size} x {size} matrices",
            "µs",
            Target("ratio", 1.02),
            functools.partial(sides, functools.partial(_product, size=size), count, 1e-6),
            rounds=9,
        )
        for size, count in {256: 100, 512: 20, 1024: 4, 2048: 1}.items()
    ),
]
