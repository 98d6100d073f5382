"""Layouts of a PyTorch model's parameters by rules for their paths, as in YAML files.

A model needs no change: at its first call while rules are in force, its parameters get the layouts
of these rules (gt/config/rules.py).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator

import torch

from gt.config import scopes
from gt.config.rules import Rule
from gt.nn import placing
from gt.torch.tensor import MuxTensor

# Modules whose weight is not [out, in], by the names of their classes; Conv1D is from transformers.
_ORIENTATIONS = {"Embedding": "table", "EmbeddingBag": "table", "Conv1D": "[in, out]"}
_MARK = "_mux_rules"


def watch() -> None:
    """Makes modules check the rules, once there are some."""
    if scopes.rules_in_force:
        _install()


@functools.cache
def _install() -> None:
    torch.nn.modules.module.register_module_forward_pre_hook(_look)


def _look(module: torch.nn.Module, args: object) -> None:
    del args
    if scopes.rules_in_force and module.__dict__.get(_MARK) is not scopes.rules_in_force[0]:
        redistribute(module, scopes.rules_in_force[0])


def redistribute(module: torch.nn.Module, rules: tuple[Rule, ...]) -> list[str]:
    """Gives the parameters on `mux` the layouts of `rules`; returns their paths."""
    stored = list(_stored(module))
    placing.redistribute(stored, rules)
    for below in module.modules():
        below.__dict__[_MARK] = rules
    paths = [path for path, _, _ in stored]
    for rule in rules if stored else ():
        if not any(rule.matches(path) for path in paths):
            text = rule.mistake(f"no parameter matches {rule.pattern!r}", "look at its path")
            warnings.warn(str(text), stacklevel=4)
    return paths


def _stored(module: torch.nn.Module) -> Iterator[placing.Stored]:
    """Each parameter once, at its first path."""
    seen: set[int] = set()
    for prefix, owner in module.named_modules():
        orientation = _ORIENTATIONS.get(type(owner).__name__, "[out, in]")
        for name, parameter in owner.named_parameters(recurse=False):
            if isinstance(parameter, MuxTensor) and id(parameter) not in seen:
                seen.add(id(parameter))
                path = f"{prefix}.{name}" if prefix else name
                yield placing.Stored(path, parameter.value, orientation)  # type: ignore[arg-type]
