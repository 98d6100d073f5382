"""Hooks of modules and optimizers: tables of functions, and the handles that take them out again.

Nothing here calls a hook or knows a module; hooked_call.py does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Hook:
    """One registered hook and how to call it."""

    function: Callable[..., object]
    with_kwargs: bool
    always_call: bool
    kind: str = ""  # in GLOBAL: what it is called around


Hooks: TypeAlias = dict[int, Hook]

# The hooks of all modules, of every kind: one table, so that a call asks one question.
GLOBAL: Hooks = {}

_next_id = itertools.count()


def registered(table: Hooks, function: Callable[..., object]) -> HookHandle:
    """`function` at the end of `table`, called with what the table's hooks get."""
    return HookHandle(table, function, prepend=False, with_kwargs=False)


def of_all_modules(kind: str) -> Hooks:
    """The hooks of this kind that are called with every module."""
    return {key: hook for key, hook in GLOBAL.items() if hook.kind == kind} if GLOBAL else {}


class HookHandle:
    """What registering a hook gives: `remove()`, or leaving a `with`, takes the hook out again."""

    def __init__(
        self,
        table: Hooks,
        function: Callable[..., object],
        *,
        prepend: bool,
        with_kwargs: bool,
        always_call: bool = False,
        kind: str = "",
    ) -> None:
        self.id = next(_next_id)
        self._table = table
        table[self.id] = Hook(function, with_kwargs, always_call, kind)
        if prepend:
            for known in [key for key in table if key != self.id]:
                table[known] = table.pop(known)

    def remove(self) -> None:
        """Take the hook out; again is harmless."""
        self._table.pop(self.id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *reason: object) -> None:
        self.remove()
