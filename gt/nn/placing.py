"""Lays out a model's parameters by rules of their paths, so that its code needs no signals.

The rules are in gt/config/rules.py; here they meet modules.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import gt
from gt import signal
from gt.config import scopes
from gt.config.layout import ShardConfig, cut_dim, placement
from gt.config.rules import STYLES, Rule, rule_for
from gt.nn.attention import MultiheadAttention
from gt.nn.embedding import Embedding
from gt.nn.linear import Linear
from gt.nn.module import Module
from gt.nn.parameter import Parameter

Laid = TypeVar("Laid", bound=Module)
Layout = str | Sequence[str] | ShardConfig


def parallelize(module: Laid, rules: Mapping[str, Layout] | None = None) -> Laid:
    """Lay out the parameters now; see gt.parallelize."""
    given = tuple(_rule(pattern, layout) for pattern, layout in (rules or {}).items())
    in_force = scopes.rules()
    used = lay_out(module, (*in_force, *given), mark=in_force)
    for rule in (*in_force, *given):
        if not any(rule.matches(path) for path in used):
            said = rule.mistake(f"no parameter matches {rule.pattern!r}", "look at its path")
            warnings.warn(str(said), stacklevel=3)
    return module


def lay_out(module: Module, rules: tuple[Rule, ...], *, mark: tuple[Rule, ...]) -> list[str]:
    """Lay out every parameter that a rule means.

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
    layouts = [
        (parameter, rule.pattern, rule.laid_out(parameter.ndim, weight=kind, name=path))
        for path, parameter, kind in found
        if (rule := rule_for(path, rules)) is not None
    ]
    with gt.no_grad():
        for parameter, pattern, layout in layouts:
            _place(parameter, pattern, layout)
    for below in module.modules():
        object.__setattr__(below, "_laid_out", mark)
    return [path for path, _, _ in found]


def _place(parameter: Parameter, name: str, layout: ShardConfig) -> None:
    """The same value, laid out: by an instruction in a scope that means the layout."""
    chosen = scopes.signal_of_layout(name, layout)
    cuts = [dim for word in layout.placements or () if (dim := cut_dim(word)) is not None]
    with signal.inner(lambda _: chosen):
        parameter.data = gt.distribute(parameter.detach(), cuts[0] if cuts else None)


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
