"""Forward hooks: registration handles and the call that runs them; knows no class of modules."""

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


Hooks: TypeAlias = dict[int, Hook]

_next_id = itertools.count()


def registered(table: Hooks, function: Callable[..., object]) -> HookHandle:
    """`function` at the end of `table`, called with what the table's hooks get."""
    return HookHandle(table, function, prepend=False, with_kwargs=False)


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
    ) -> None:
        self.id = next(_next_id)
        self._table = table
        table[self.id] = Hook(function, with_kwargs, always_call)
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


def call_hooked(
    module: object,
    forward: Callable[..., object],
    before: Hooks,
    after: Hooks,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """Run the forward of `module` between its hooks, which are called with it first."""
    pending = dict(after)
    try:
        for hook in list(before.values()):
            args, kwargs = _call_before(hook, module, args, kwargs)
        output = forward(*args, **kwargs)
        for key, hook in list(pending.items()):
            del pending[key]
            output = _call_after(hook, module, args, kwargs, output)
    except Exception:
        for hook in pending.values():
            if hook.always_call:
                _call_after(hook, module, args, kwargs, None)
        raise
    return output


def _call_before(
    hook: Hook, module: object, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    if not hook.with_kwargs:
        changed = hook.function(module, args)
        if changed is None:
            return args, kwargs
        return (changed if isinstance(changed, tuple) else (changed,)), kwargs
    changed = hook.function(module, args, kwargs)
    if changed is None:
        return args, kwargs
    if isinstance(changed, tuple) and len(changed) == 2:
        return changed
    raise RuntimeError(
        "forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
        f"but got {changed}."
    )


def _call_after(
    hook: Hook, module: object, args: tuple[object, ...], kwargs: dict[str, object], output: object
) -> object:
    if hook.with_kwargs:
        changed = hook.function(module, args, kwargs, output)
    else:
        changed = hook.function(module, args, output)
    return output if changed is None else changed
