"""The call of a module that has hooks, or while there are hooks of all modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from gt.nn import global_hooks as kinds
from gt.nn.backward_hooks import BackwardHooks, attach_to_last_operation
from gt.nn.hooked import Hooked
from gt.nn.hooks import Hook, Hooks, of_all_modules


def call_hooked(
    module: Hooked,
    forward: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """Run the forward of `module` between its hooks; those of all modules come first."""
    called: set[int] = set()
    output: object = None
    try:
        for hook in _both(kinds.FORWARD_PRE, module._forward_pre_hooks).values():
            args, kwargs = _call_before(hook, module, args, kwargs)
        backward, old = _backward_hooks(module)
        if backward is not None:
            args = backward.inputs(args)
        output = forward(*args, **kwargs)
        for key, hook in _both(kinds.FORWARD, module._forward_hooks).items():
            called.add(key)
            output = _call_after(hook, module, args, kwargs, output)
        if backward is not None:
            output = backward.outputs(output)
        if old:
            attach_to_last_operation(module, old, args, output)
    except Exception:
        for key, hook in _both(kinds.FORWARD, module._forward_hooks).items():
            if hook.always_call and key not in called:
                output = _call_after_failure(hook, module, args, kwargs, output)
        raise
    return output


def _both(kind: str, own: Hooks) -> Hooks:
    return {**of_all_modules(kind), **own}


def _backward_hooks(module: Hooked) -> tuple[BackwardHooks | None, list[Callable[..., object]]]:
    """The backward hooks of this call, and those of the old kind."""
    own = [hook.function for hook in module._backward_hooks.values()]
    full = [hook.function for hook in of_all_modules(kinds.BACKWARD).values()]
    old = [hook.function for hook in of_all_modules(kinds.OLD_BACKWARD).values()]
    (full if module._is_full_backward_hook else old).extend(own)
    before = _both(kinds.BACKWARD_PRE, module._backward_pre_hooks)
    if not full and not before:
        return None, old
    return BackwardHooks(module, [hook.function for hook in before.values()], full), old


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


def _call_after_failure(
    hook: Hook, module: object, args: tuple[object, ...], kwargs: dict[str, object], output: object
) -> object:
    """As after a forward; what the hook itself raises is a warning, for the first error counts."""
    try:
        return _call_after(hook, module, args, kwargs, output)
    except Exception as error:  # noqa: BLE001 - the forward's is raised
        warnings.warn(
            f"{'global ' if hook.kind else ''}module forward hook with ``always_call=True`` raised "
            "an exception that was silenced as another error was raised in forward: "
            f"{error}",
            stacklevel=4,
        )
        return output
