"""What registers hooks on a module: around its forward, its saving and its loading.

The hooks are called by Module; hooks.py has what a registered hook is.
"""

from __future__ import annotations

from collections.abc import Callable

from gt.nn.hooks import HookHandle, Hooks, registered


class Hooked:
    """The part of Module that programs hang functions on."""

    _pre_hooks: Hooks
    _hooks: Hooks
    _save_pre_hooks: Hooks
    _save_hooks: Hooks
    _load_pre_hooks: Hooks
    _load_hooks: Hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., object], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args)` before each forward.

        What it returns, if not None, replaces the arguments.
        """
        return HookHandle(self._pre_hooks, hook, prepend=prepend, with_kwargs=with_kwargs)

    def register_forward_hook(
        self,
        hook: Callable[..., object],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> HookHandle:
        """Call `hook(module, args, output)` after each forward.

        What it returns, if not None, replaces the output.
        """
        return HookHandle(
            self._hooks, hook, prepend=prepend, with_kwargs=with_kwargs, always_call=always_call
        )

    def register_state_dict_pre_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(module, prefix, keep_vars)` before state_dict() collects this module."""
        return registered(self._save_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after state_dict().

        It may change the dictionary; the metadata are empty here.
        """
        return registered(self._save_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, ...)` before a load.

        The rest are the lists of missing keys, unexpected keys and errors. It may change the
        dictionary, which is a copy; the metadata are empty here.
        """
        return registered(self._load_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(module, incompatible_keys)` after a load; it may change both lists."""
        return registered(self._load_hooks, hook)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., object], with_module: bool = False
    ) -> HookHandle:
        """As the public one, but the hook is called without the module."""
        if with_module:
            return registered(self._load_pre_hooks, hook)
        return registered(self._load_pre_hooks, lambda _module, *given: hook(*given))

    _register_state_dict_hook = register_state_dict_post_hook
