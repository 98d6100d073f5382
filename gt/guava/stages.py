"""Stages: a model's modules cut into parts of about equal cost, each on workers of its own.

Costs are measured: the model runs on a batch, and each module is timed. A module that costs more
than a stage's share is split into its children.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gt
from gt.errors import ConfigError
from gt.guava.library import Model

__all__ = ["Stage", "measured", "stages_of", "within"]


@dataclasses.dataclass(frozen=True)
class Stage:
    """Modules of one stage, by path, and their share of the total cost."""

    paths: tuple[str, ...]
    share: float


def measured(model: Model, run: Callable[[], object], repeats: int = 4) -> dict[str, float]:
    """Seconds of each module, in the order in which they are called; the first run only warms up.

    Args:
        model: model with the modules to time.
        run: function that calls the model once.
        repeats: number of calls; the shortest time counts.
    """
    begun: dict[str, float] = {}
    taken: dict[str, float] = {}

    def before(path: str) -> None:
        gt.synchronize()
        taken.setdefault(path, float("inf"))
        begun[path] = time.perf_counter()

    def after(path: str) -> None:
        gt.synchronize()
        taken[path] = min(taken[path], time.perf_counter() - begun[path])

    handles = [
        handle
        for path, module in model.named_modules()
        for handle in around(module, partial(before, path), partial(after, path))
    ]
    was_training = model.training
    model.eval()
    try:
        with gt.random.fork_rng(), gt.no_grad():
            for _ in range(repeats):
                run()
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    return taken


def stages_of(model: Model, costs: Mapping[str, float], count: int) -> list[Stage]:
    """Split the model's modules into `count` contiguous stages that minimize the largest cost.

    Args:
        model: model to split.
        costs: cost of each module that is called, in the order of calls.
        count: number of stages.

    Raises:
        ConfigError: the model has fewer modules.
    """
    units = _units(model, costs, count)
    if len(units) < count:
        raise ConfigError(
            f"{count} stages, and the model has {len(units)} modules that can be cut apart",
            f"set num_workers or tensor_parallel_size so that there are {len(units)} stages",
        )
    ends = _ends([costs[path] for path in units], count)
    total = sum(costs[path] for path in units)
    parts = [units[start:end] for start, end in zip((0, *ends), (*ends, len(units)), strict=True)]
    return [
        Stage(tuple(part), sum(costs[path] for path in part) / max(total, 1e-12)) for part in parts
    ]


def within(model: Model, stages: Sequence[Stage], names: Sequence[str]) -> list[Any]:
    """Make each call of a stage's module run in the stage's scope; returns the hooks."""
    modules = dict(model.named_modules())
    return [
        handle
        for stage, name in zip(stages, names, strict=True)
        for path in stage.paths
        for handle in around(
            modules[path], partial(gt.signal.enter, name), partial(gt.signal.exit, name)
        )
    ]


def around(module: Model, before: Callable[[], None], after: Callable[[], None]) -> list[Any]:
    """Call these before and after each forward of a module, even if it raises; returns
    the hooks.
    """
    return [
        module.register_forward_pre_hook(lambda *_: before()),
        module.register_forward_hook(lambda *_: after(), always_call=True),
    ]


def _units(model: Model, costs: Mapping[str, float], count: int) -> list[str]:
    """Modules that stages consist of, as large as possible, in the order of calls."""
    modules, order = dict(model.named_modules()), {path: place for place, path in enumerate(costs)}
    units, leaves = [""], set[str]()
    limit = costs.get("", 0.0) / count
    while True:
        too_large = [path for path in units if costs[path] > limit or len(units) < count]
        open_ones = [path for path in too_large if path not in leaves]
        if not open_ones:
            return sorted(units, key=lambda path: order[path])
        dearest = max(open_ones, key=lambda path: costs[path])
        inside = _called_inside(dearest, modules[dearest], costs)
        if inside:
            units = [path for path in units if path != dearest] + inside
        else:
            leaves.add(dearest)


def _called_inside(path: str, module: Model, costs: Mapping[str, float]) -> list[str]:
    """The nearest descendants of a module that are called; lists of modules are not."""
    paths: list[str] = []
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        paths += [inner] if inner in costs else _called_inside(inner, child, costs)
    return paths


def _ends(costs: Sequence[float], count: int) -> list[int]:
    """Ends of all stages but the last, chosen to minimize the largest cost; no stage is empty."""
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    best = {end: (sums[end], [end]) for end in range(1, len(costs) + 1)}
    for stage in range(2, count + 1):
        best = {
            end: min(
                (max(best[start][0], sums[end] - sums[start]), [*best[start][1], end])
                for start in range(stage - 1, end)
            )
            for end in range(stage, len(costs) + 1)
        }
    return best[len(costs)][1][:-1]
