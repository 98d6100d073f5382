"""Layouts of a PyTorch model's parameters by rules of their paths, as YAML files have them.

A model needs no change: when it is called first while rules are in force, its parameters get the
layouts that the rules say (gt/config/rules.py).
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

# Modules whose weight is no [out, in], by the names of their classes: Conv1D is of transformers.
_ORIENTATIONS = {"Embedding": "table", "EmbeddingBag": "table", "Conv1D": "[in, out]"}
_MARK = "_mux_rules"


def watch() -> None:
    """Has modules look at the rules, from when there are some."""
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
    """Gives the parameters of the device `mux` the layouts that `rules` say; their paths."""
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
