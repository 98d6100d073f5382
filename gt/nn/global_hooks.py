"""Hooks that are called with every module: `torch.nn.modules.module.register_module_*`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gt.nn.hooks import GLOBAL, HookHandle, of_all_modules

T = TypeVar("T")
Function = Callable[..., object]

# Kinds of GLOBAL's hooks.
FORWARD_PRE, FORWARD = "forward pre", "forward"
BACKWARD_PRE, BACKWARD, OLD_BACKWARD = "backward pre", "backward", "old backward"
PARAMETER, BUFFER, MODULE = "parameter", "buffer", "module"


def register_module_forward_pre_hook(hook: Function) -> HookHandle:
    """Call `hook(module, args)` before the forward of every module; see the method's."""
    return _registered(FORWARD_PRE, hook)


def register_module_forward_hook(
    hook: Function, *, with_kwargs: bool = False, always_call: bool = False
) -> HookHandle:
    """Call `hook(module, args, output)` after the forward of every module; see the method's."""
    return _registered(FORWARD, hook, with_kwargs=with_kwargs, always_call=always_call)


def register_module_full_backward_pre_hook(hook: Function) -> HookHandle:
    """Call `hook(module, grad_output)` before every module's gradients; see the method's."""
    return _registered(BACKWARD_PRE, hook)


def register_module_full_backward_hook(hook: Function) -> HookHandle:
    """Call `hook(module, grad_input, grad_output)` at every module's gradients; see the method's.

    Raises:
        RuntimeError: there are hooks of `register_module_backward_hook`.
    """
    _refuse_beside(OLD_BACKWARD)
    return _registered(BACKWARD, hook)


def register_module_backward_hook(hook: Function) -> HookHandle:
    """PyTorch's old form of `register_module_full_backward_hook`; see the method's.

    Raises:
        RuntimeError: there are hooks of `register_module_full_backward_hook`.
    """
    _refuse_beside(BACKWARD)
    return _registered(OLD_BACKWARD, hook)


def register_module_parameter_registration_hook(hook: Function) -> HookHandle:
    """Call `hook(module, name, parameter)` where one is registered; what it returns is taken."""
    return _registered(PARAMETER, hook)


def register_module_buffer_registration_hook(hook: Function) -> HookHandle:
    """Call `hook(module, name, buffer)` where one is registered; what it returns is taken."""
    return _registered(BUFFER, hook)


def register_module_module_registration_hook(hook: Function) -> HookHandle:
    """Call `hook(module, name, child)` where one is registered; what it returns is taken."""
    return _registered(MODULE, hook)


def at_registration(kind: str, module: object, name: str, value: T) -> T:
    """What the hooks of a registration make of `value`."""
    for hook in of_all_modules(kind).values():
        changed = hook.function(module, name, value)
        value = value if changed is None else changed  # type: ignore[assignment] # the hook's word
    return value


def _registered(
    kind: str, hook: Function, *, with_kwargs: bool = False, always_call: bool = False
) -> HookHandle:
    return HookHandle(
        GLOBAL, hook, prepend=False, with_kwargs=with_kwargs, always_call=always_call, kind=kind
    )


def _refuse_beside(kind: str) -> None:
    if of_all_modules(kind):
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a "
            "global Module hook. Please use only one of them."
        )
