"""Hooks that are called for every module: `torch.nn.modules.module.register_module_*`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gt.nn.hooks import HookHandle, Hooks, registered

T = TypeVar("T")
Function = Callable[..., object]

# Hooks around every module's forward and backward, and at registrations.
FORWARD_PRE: Hooks = {}
FORWARD: Hooks = {}
BACKWARD_PRE: Hooks = {}
BACKWARD: Hooks = {}
OLD_BACKWARD: Hooks = {}
PARAMETER: Hooks = {}
BUFFER: Hooks = {}
MODULE: Hooks = {}


def register_module_forward_pre_hook(hook: Function) -> HookHandle:
    """Call `hook(module, args)` before the forward of every module; see the method's."""
    return registered(FORWARD_PRE, hook)


def register_module_forward_hook(
    hook: Function, *, with_kwargs: bool = False, always_call: bool = False
) -> HookHandle:
    """Call `hook(module, args, output)` after the forward of every module; see the method's."""
    return HookHandle(
        FORWARD, hook, prepend=False, with_kwargs=with_kwargs, always_call=always_call
    )


def register_module_full_backward_pre_hook(hook: Function) -> HookHandle:
    """Call `hook(module, grad_output)` before every module's gradients; see the method's."""
    return registered(BACKWARD_PRE, hook)


def register_module_full_backward_hook(hook: Function) -> HookHandle:
    """Call `hook(module, grad_input, grad_output)` at every module's gradients; see the method's.

    Raises:
        RuntimeError: there are hooks of `register_module_backward_hook`.
    """
    _refuse_beside(OLD_BACKWARD)
    return registered(BACKWARD, hook)


def register_module_backward_hook(hook: Function) -> HookHandle:
    """PyTorch's old form of `register_module_full_backward_hook`; see the method's.

    Raises:
        RuntimeError: there are hooks of `register_module_full_backward_hook`.
    """
    _refuse_beside(BACKWARD)
    return registered(OLD_BACKWARD, hook)


def register_module_parameter_registration_hook(hook: Function) -> HookHandle:
    """Call `hook(module, name, parameter)` at a registration; its result replaces the parameter."""
    return registered(PARAMETER, hook)


def register_module_buffer_registration_hook(hook: Function) -> HookHandle:
    """Call `hook(module, name, buffer)` at a registration; its result replaces the buffer."""
    return registered(BUFFER, hook)


def register_module_module_registration_hook(hook: Function) -> HookHandle:
    """Call `hook(module, name, child)` at a registration; its result replaces the child."""
    return registered(MODULE, hook)


def hooks_are_there() -> bool:
    """True if a call of any module has global hooks to run."""
    return bool(FORWARD_PRE or FORWARD or BACKWARD_PRE or BACKWARD or OLD_BACKWARD)


def at_registration(hooks: Hooks, module: object, name: str, value: T) -> T:
    """`value` after the hooks of its registration."""
    for hook in list(hooks.values()):
        changed = hook(module, name, value)
        value = value if changed is None else changed  # type: ignore[assignment] # the hook's word
    return value


def _refuse_beside(hooks: Hooks) -> None:
    if hooks:
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a "
            "global Module hook. Please use only one of them."
        )
