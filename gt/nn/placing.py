"""Gives a model's parameters layouts by rules of their paths, so that its code needs no signals.

The rules are in gt/config/rules.py; here they meet modules.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import gt
from gt import _core, config
from gt.config import scopes
from gt.config.layout import ShardConfig, placement
from gt.config.rules import STYLES, Rule, rule_for
from gt.nn.attention import MultiheadAttention
from gt.nn.embedding import Embedding
from gt.nn.linear import Linear
from gt.nn.module import Module
from gt.nn.parameter import Parameter

Parallelized = TypeVar("Parallelized", bound=Module)
REPLICATE = "replicate"
Layout = str | Sequence[str] | ShardConfig


def parallelize(module: Parallelized, rules: Mapping[str, Layout] | None = None) -> Parallelized:
    """Redistribute the parameters now; see gt.parallelize."""
    given = tuple(_rule(pattern, layout) for pattern, layout in (rules or {}).items())
    in_force = scopes.rules()
    used = redistribute(module, (*in_force, *given), mark=in_force)
    for rule in (*in_force, *given):
        if not any(rule.matches(path) for path in used):
            said = rule.mistake(f"no parameter matches {rule.pattern!r}", "look at its path")
            warnings.warn(str(said), stacklevel=3)
    return module


def redistribute(module: Module, rules: tuple[Rule, ...], *, mark: tuple[Rule, ...]) -> list[str]:
    """Redistribute every parameter that a rule matches.

    Args:
        module: whose names the paths are.
        rules: of those that match the last holds.
        mark: the rules that need not be looked at again when the module is called.

    Returns:
        The paths of all parameters.

    Raises:
        ConfigError: a rule cuts a dimension that a parameter does not have; nothing is moved then.
    """
    found = list(_stored(module))
    _log([path for path, _, _ in found], rules)
    layouts = [
        (parameter, rule.layout_of(parameter.ndim, weight=kind, name=path))
        for path, parameter, kind in found
        if (rule := rule_for(path, rules)) is not None
    ]
    if layouts:
        there = _core.workers()
        with gt.no_grad():
            for parameter, layout in layouts:
                text = _text(layout, there)
                parameter.data = _core.distribute(parameter.detach(), layout=text)
    for below in module.modules():
        object.__setattr__(below, "_layout_rules", mark)
    return [path for path, _, _ in found]


def _log(paths: list[str], rules: tuple[Rule, ...]) -> None:
    """Write down which rules mean a parameter, where somebody asks for it."""
    file = config.rule_log()
    if file is None:
        return
    meant = [rule.place for rule in rules if any(map(rule.matches, paths))]
    with Path(file).open("a", encoding="utf-8") as log:  # of all processes of a program
        log.write("".join(f"{place}\n" for place in meant))


def _text(layout: ShardConfig, there: Sequence[int]) -> str:
    """A layout as an instruction says it, over the workers that there are."""
    named = there if layout.workers is None else layout.workers
    workers = [index for index in named if index in there] or list(there)
    sizes = [*(layout.mesh or {}).values()]
    words = [_word(word, layout.blocks) for word in layout.placements or ()]
    if math.prod(sizes) != len(workers) or len(sizes) != len(words):
        # a line of workers: what the mesh would have cut first
        sizes, words = [], [next((word for word in words if word != REPLICATE), REPLICATE)]
    return f"{','.join(words)}@{_nested(workers, sizes[1:])}"


def _word(word: str, blocks: int | None) -> str:
    return word if blocks is None or word == REPLICATE else f"{word[:-1]},blocks={blocks})"


def _nested(workers: list[int], sizes: list[int]) -> str:
    """`[[0,1],[2,3]]`: the rows of a mesh whose first size is left out."""
    if not sizes:
        return f"[{','.join(map(str, workers))}]"
    row = math.prod(sizes)
    rows = [workers[start : start + row] for start in range(0, len(workers), row)]
    return f"[{','.join(_nested(one, sizes[1:]) for one in rows)}]"


def _stored(module: Module) -> Iterator[tuple[str, Parameter, str]]:
    """Path, parameter, and in which orientation its module stores it; each parameter once."""
    seen: set[int] = set()
    for prefix, owner in module.named_modules():
        kind = "[in, out]"
        if isinstance(owner, Linear | MultiheadAttention):
            kind = "[out, in]"
        elif isinstance(owner, Embedding):
            kind = "table"
        for name, parameter in owner._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{prefix}.{name}" if prefix else name, parameter, kind


def _rule(pattern: str, layout: Layout) -> Rule:
    """A rule of a program."""
    style = layout if isinstance(layout, str) and layout in STYLES else None
    if style is not None:
        shard = ShardConfig()
    elif isinstance(layout, ShardConfig):
        shard = layout
    else:
        shard = ShardConfig(placements=[placement(layout)] if isinstance(layout, str) else layout)
    return Rule(pattern=pattern, style=style, shard=shard, file="parallelize")
