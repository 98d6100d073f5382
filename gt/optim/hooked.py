"""Registration of hooks on an optimizer, and the calls of them around a step.

A subclass's own `step` is wrapped when the class is created, so its hooks are called, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from gt.nn.hooks import HookHandle, Hooks

Step = TypeVar("Step", bound=Callable[..., Any])

# Hooks around every optimizer's steps.
STEP_PRE: Hooks = {}
STEP: Hooks = {}


def register_optimizer_step_pre_hook(hook: Callable[..., object]) -> HookHandle:
    """Call `hook(optimizer, args, kwargs)` before each step of every optimizer."""
    return HookHandle(STEP_PRE, hook, prepend=False, with_kwargs=True)


def register_optimizer_step_post_hook(hook: Callable[..., object]) -> HookHandle:
    """Call `hook(optimizer, args, kwargs)` after each step of every optimizer."""
    return HookHandle(STEP, hook, prepend=False, with_kwargs=True)


class Hooked:
    """The part of Optimizer on which programs register hooks."""

    _step_pre_hooks: Hooks
    _step_hooks: Hooks
    _save_pre_hooks: Hooks
    _save_hooks: Hooks
    _load_pre_hooks: Hooks
    _load_hooks: Hooks
    _opt_called: bool = False  # True once it has stepped, for schedules
    _stepping: bool = False  # True within a step: a base class's step then calls no hooks again

    def __init_subclass__(cls, **options: Any) -> None:  # noqa: ANN401 - a metaclass's
        super().__init_subclass__(**options)
        if "step" in cls.__dict__:
            cls.step = hooked(cls.__dict__["step"])  # type: ignore[attr-defined]

    def _make_hooks(self) -> None:
        self._step_pre_hooks, self._step_hooks = {}, {}
        self._save_pre_hooks, self._save_hooks = {}, {}
        self._load_pre_hooks, self._load_hooks = {}, {}

    def register_step_pre_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(optimizer, args, kwargs)` before each step, with the step's arguments.

        A result that is not None replaces both; `args` begins with the optimizer.
        """
        return HookHandle(self._step_pre_hooks, hook, prepend=False, with_kwargs=True)

    def register_step_post_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return HookHandle(self._step_hooks, hook, prepend=False, with_kwargs=True)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> HookHandle:
        """Call `hook(optimizer)` before state_dict()."""
        return HookHandle(self._save_pre_hooks, hook, prepend=prepend, with_kwargs=False)

    def register_state_dict_post_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> HookHandle:
        """Call `hook(optimizer, state_dict)` after state_dict(); it may return another one."""
        return HookHandle(self._save_hooks, hook, prepend=prepend, with_kwargs=False)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> HookHandle:
        """Call `hook(optimizer, state_dict)` before a load; it may return another one."""
        return HookHandle(self._load_pre_hooks, hook, prepend=prepend, with_kwargs=False)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> HookHandle:
        """Call `hook(optimizer)` after a load."""
        return HookHandle(self._load_hooks, hook, prepend=prepend, with_kwargs=False)

    def _step_between(
        self, step: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> object:
        for hook in [*STEP_PRE.values(), *self._step_pre_hooks.values()]:
            changed: Any = hook(self, args, kwargs)
            if changed is None:
                continue
            if not isinstance(changed, tuple) or len(changed) != 2:
                raise RuntimeError(
                    f"{step} must return None or a tuple of (new_args, new_kwargs), "
                    f"but got {changed}."
                )
            args, kwargs = changed
        result: object = step(*args, **kwargs)
        for hook in [*self._step_hooks.values(), *STEP.values()]:
            hook(self, args, kwargs)
        return result

    def _changed(self, hooks: Hooks, state_dict: dict[str, Any]) -> dict[str, Any]:
        """The state dictionary after the hooks."""
        for hook in list(hooks.values()):
            changed: Any = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict


def hooked(step: Step) -> Step:
    """`step` wrapped in the hooks of the optimizer on which it is called."""

    @functools.wraps(step)
    def between(self: Hooked, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as `step`
        self._opt_called = True
        if self._stepping or not (self._step_pre_hooks or self._step_hooks or STEP_PRE or STEP):
            return step(self, *args, **kwargs)
        self._stepping = True
        try:
            return self._step_between(step, (self, *args), kwargs)
        finally:
            self._stepping = False

    return between  # type: ignore[return-value] # of the same signature
