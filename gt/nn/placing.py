"""Gives a model's parameters layouts by rules for their paths, so that its code needs no signals.

The rules are in gt/config/rules.py; here they are applied. Modules are not known here: a module
lists its parameters, each with the orientation in which it stores them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import gt
from gt import _core, config
from gt.config import scopes
from gt.config.layout import ShardConfig, placement
from gt.config.rules import STYLES, Rule, rule_for
from gt.nn.parameter import Parameter

REPLICATE = "replicate"
Layout = str | Sequence[str] | ShardConfig


class Stored(NamedTuple):
    """A parameter with its path and its orientation: `[in, out]`, `[out, in]` or `table`."""

    path: str
    parameter: Parameter
    orientation: str


class Redistributable(Protocol):
    """An object with parameters to redistribute: a module."""

    def _redistribute(self, rules: tuple[Rule, ...], *, mark: tuple[Rule, ...]) -> list[str]: ...


Parallelized = TypeVar("Parallelized", bound=Redistributable)


def parallelize(module: Parallelized, rules: Mapping[str, Layout] | None = None) -> Parallelized:
    """Redistribute the parameters now; see gt.parallelize."""
    patterns = tuple(_rule(pattern, layout) for pattern, layout in (rules or {}).items())
    in_force = scopes.rules()
    used = module._redistribute((*in_force, *patterns), mark=in_force)
    for rule in (*in_force, *patterns):
        if not any(rule.matches(path) for path in used):
            text = rule.mistake(f"no parameter matches {rule.pattern!r}", "look at its path")
            warnings.warn(str(text), stacklevel=3)
    return module


def redistribute(stored: Sequence[Stored], rules: tuple[Rule, ...]) -> None:
    """Redistribute every parameter that a rule matches.

    Args:
        stored: all parameters of a module.
        rules: the rules; the last one that matches applies.

    Raises:
        ConfigError: a rule cuts a dimension that a parameter does not have; nothing is moved then.
    """
    _log([path for path, _, _ in stored], rules)
    layouts = [
        (parameter, rule.layout_of(parameter.ndim, weight=orientation, name=path))
        for path, parameter, orientation in stored
        if (rule := rule_for(path, rules)) is not None
    ]
    if layouts:
        there = _core.workers()
        with gt.no_grad():
            for parameter, layout in layouts:
                text = _text(layout, there)
                parameter.data = _core.distribute(parameter.detach(), layout=text)


def _log(paths: list[str], rules: tuple[Rule, ...]) -> None:
    """Logs the rules that match a parameter, if a file is configured for it."""
    file = config.rule_log()
    if file is None:
        return
    meant = [rule.place for rule in rules if any(map(rule.matches, paths))]
    with Path(file).open("a", encoding="utf-8") as log:  # shared by all processes of a program
        log.write("".join(f"{place}\n" for place in meant))


def _text(layout: ShardConfig, there: Sequence[int]) -> str:
    """A layout in the form of an instruction, over the existing workers."""
    named = there if layout.workers is None else layout.workers
    workers = [index for index in named if index in there] or list(there)
    sizes = [*(layout.mesh or {}).values()]
    words = [_word(word, layout.blocks) for word in layout.placements or ()]
    if math.prod(sizes) != len(workers) or len(sizes) != len(words):
        # a line of workers: the first cut of the mesh
        sizes, words = [], [next((word for word in words if word != REPLICATE), REPLICATE)]
    return f"{','.join(words)}@{_nested(workers, sizes[1:])}"


def _word(word: str, blocks: int | None) -> str:
    return word if blocks is None or word == REPLICATE else f"{word[:-1]},blocks={blocks})"


def _nested(workers: list[int], sizes: list[int]) -> str:
    """The rows of a mesh without its first size: `[[0,1],[2,3]]`."""
    if not sizes:
        return f"[{','.join(map(str, workers))}]"
    row = math.prod(sizes)
    rows = [workers[start : start + row] for start in range(0, len(workers), row)]
    return f"[{','.join(_nested(one, sizes[1:]) for one in rows)}]"


def _rule(pattern: str, layout: Layout) -> Rule:
    """A rule made by a program."""
    style = layout if isinstance(layout, str) and layout in STYLES else None
    if style is not None:
        shard = ShardConfig()
    elif isinstance(layout, ShardConfig):
        shard = layout
    else:
        shard = ShardConfig(placements=[placement(layout)] if isinstance(layout, str) else layout)
    return Rule(pattern=pattern, style=style, shard=shard, file="parallelize")
