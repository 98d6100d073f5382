"""The call of a module that has hooks, or while there are global hooks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeAlias

from gt.nn import global_hooks
from gt.nn.backward_hooks import BackwardHooks, attach_to_last_operation
from gt.nn.hooked import Hooked
from gt.nn.hooks import ALWAYS_CALL, WITH_KWARGS, Hooks

Function: TypeAlias = Callable[..., object]


def call_hooked(
    module: Hooked,
    forward: Function,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """Run the forward of `module` between its hooks; global ones come first."""
    called: set[int] = set()
    output: object = None
    try:
        for key, hook in _both(global_hooks.FORWARD_PRE, module._forward_pre_hooks):
            args, kwargs = _call_before(key, hook, module, args, kwargs)
        backward, old = _backward_hooks(module)
        if backward is not None:
            args = backward.inputs(args)
        output = forward(*args, **kwargs)
        for key, hook in _both(global_hooks.FORWARD, module._forward_hooks):
            called.add(key)
            output = _call_after(key, hook, module, args, kwargs, output)
        if backward is not None:
            output = backward.outputs(output)
        if old:
            attach_to_last_operation(module, old, args, output)
    except Exception:
        for key, hook in _both(global_hooks.FORWARD, module._forward_hooks):
            if key & ALWAYS_CALL and key not in called:
                output = _call_after_failure(key, hook, module, args, kwargs, output)
        raise
    return output


def _both(everywhere: Hooks, own: Hooks) -> list[tuple[int, Function]]:
    return [*everywhere.items(), *own.items()]


def _backward_hooks(module: Hooked) -> tuple[BackwardHooks | None, list[Function]]:
    """The backward hooks of this call, and the hooks of the old kind."""
    own = module._backward_hooks.values()
    full, old = [*global_hooks.BACKWARD.values()], [*global_hooks.OLD_BACKWARD.values()]
    (full if module._is_full_backward_hook else old).extend(own)
    before = [*global_hooks.BACKWARD_PRE.values(), *module._backward_pre_hooks.values()]
    return (BackwardHooks(module, before, full) if full or before else None), old


def _call_before(
    key: int,
    hook: Function,
    module: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> tuple[tuple[object, ...], dict[str, object]]:
    if not key & WITH_KWARGS:
        changed = hook(module, args)
        if changed is None:
            return args, kwargs
        return (changed if isinstance(changed, tuple) else (changed,)), kwargs
    changed = hook(module, args, kwargs)
    if changed is None:
        return args, kwargs
    if isinstance(changed, tuple) and len(changed) == 2:
        return changed
    raise RuntimeError(
        "forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
        f"but got {changed}."
    )


def _call_after(
    key: int,
    hook: Function,
    module: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    output: object,
) -> object:
    more = (kwargs,) if key & WITH_KWARGS else ()
    changed = hook(module, args, *more, output)
    return output if changed is None else changed


def _call_after_failure(
    key: int,
    hook: Function,
    module: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    output: object,
) -> object:
    """Calls a hook after a failed forward; the hook's own error is a warning, for the first error
    counts.
    """
    try:
        return _call_after(key, hook, module, args, kwargs, output)
    except Exception as error:  # noqa: BLE001 - the forward's error is raised
        what = "global module" if key in global_hooks.FORWARD else "module"
        warnings.warn(
            f"{what} forward hook with ``always_call=True`` raised an exception that was silenced "
            f"as another error was raised in forward: {error}",
            stacklevel=4,
        )
        return output
