"""Hooks of modules and optimizers: tables of functions, and handles that remove them.

Nothing here calls a hook or knows a module; hooked_call.py does. A table is a dictionary of the
plain functions, as programs that look for their hooks expect; the bits of a function's number tell
how it is called.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

Hooks: TypeAlias = dict[int, Callable[..., object]]

WITH_KWARGS, ALWAYS_CALL = 1, 2  # bits of a hook's number
_next_id = itertools.count(0, 4)


def registered(table: Hooks, function: Callable[..., object]) -> HookHandle:
    """Adds `function` at the end of `table`, to be called with the arguments of the
    table's hooks.
    """
    return HookHandle(table, function, prepend=False, with_kwargs=False)


class HookHandle:
    """Handle of a registered hook: `remove()`, or the end of a `with` block, removes the hook."""

    def __init__(
        self,
        table: Hooks,
        function: Callable[..., object],
        *,
        prepend: bool,
        with_kwargs: bool,
        always_call: bool = False,
    ) -> None:
        self.id = next(_next_id) | WITH_KWARGS * with_kwargs | ALWAYS_CALL * always_call
        self._table = table
        table[self.id] = function
        if prepend:
            for other in [key for key in table if key != self.id]:
                table[other] = table.pop(other)

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        self._table.pop(self.id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *reason: object) -> None:
        self.remove()
