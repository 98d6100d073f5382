"""Registration of hooks on a module: around its forward, its backward, its saving and its loading.

Module calls the hooks of saving and loading, hooked_call.py the others; hooks.py defines their
tables. The tables have PyTorch's names, because programs test if they are empty.
"""

from __future__ import annotations

from collections.abc import Callable

from gt.nn.hooks import HookHandle, Hooks, registered

TABLES = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
    "_state_dict_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)


class Hooked:
    """The part of Module on which programs register hooks."""

    _forward_pre_hooks: Hooks
    _forward_hooks: Hooks
    _backward_pre_hooks: Hooks
    _backward_hooks: Hooks
    _state_dict_pre_hooks: Hooks
    _state_dict_hooks: Hooks
    _load_state_dict_pre_hooks: Hooks
    _load_state_dict_post_hooks: Hooks
    _is_full_backward_hook: bool | None = None  # full, or False: old

    def register_forward_pre_hook(
        self, hook: Callable[..., object], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args)` before each forward.

        A result that is not None replaces the arguments.
        """
        table = self._forward_pre_hooks
        return HookHandle(table, hook, prepend=prepend, with_kwargs=with_kwargs)

    def register_forward_hook(
        self,
        hook: Callable[..., object],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> HookHandle:
        """Call `hook(module, args, output)` after each forward.

        A result that is not None replaces the output. With `always_call` it is also called after a
        forward that raised, with None.
        """
        return HookHandle(
            self._forward_hooks,
            hook,
            prepend=prepend,
            with_kwargs=with_kwargs,
            always_call=always_call,
        )

    def register_full_backward_pre_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> HookHandle:
        """Call `hook(module, grad_output)` in a backward pass before the module's gradients.

        `grad_output` is a tuple with the gradient of each output, None for one that is no tensor or
        gets none; a returned tuple replaces it.
        """
        return HookHandle(self._backward_pre_hooks, hook, prepend=prepend, with_kwargs=False)

    def register_full_backward_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> HookHandle:
        """Call `hook(module, grad_input, grad_output)` once the module's gradients are computed.

        Both are tuples over the positional arguments and over the outputs, with None for each that
        is no tensor; a returned tuple replaces `grad_input`. If no argument requires a gradient,
        the hook is called with the gradients of the outputs. PyTorch refuses in-place writes to
        arguments or outputs of a module with such a hook; here they are differentiated, and the
        hook gets the gradients of the tensors with which the module was called and of those that it
        returned.

        Raises:
            RuntimeError: the module has hooks of `register_backward_hook`.
        """
        self._say_kind_of_backward_hooks(is_full=True)
        return HookHandle(self._backward_hooks, hook, prepend=prepend, with_kwargs=False)

    def register_backward_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(module, grad_input, grad_output)` with the gradients of the last operation.

        This is PyTorch's old form: the content of `grad_input` depends on that operation, whose
        operands GT may order or fuse otherwise; `register_full_backward_hook` is reliable.

        Raises:
            RuntimeError: the module has hooks of `register_full_backward_hook`.
        """
        self._say_kind_of_backward_hooks(is_full=False)
        return registered(self._backward_hooks, hook)

    def _say_kind_of_backward_hooks(self, *, is_full: bool) -> None:
        if self._is_full_backward_hook is (not is_full):
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a "
                "single Module. Please use only one of them."
            )
        object.__setattr__(self, "_is_full_backward_hook", is_full)

    def register_state_dict_pre_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(module, prefix, keep_vars)` before state_dict() collects this module."""
        return registered(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after state_dict().

        It may change the dictionary in place.

        Raises:
            RuntimeError: at the save, if the hook returns something.
        """

        def checked(*given: object) -> None:
            if hook(*given) is not None:
                raise RuntimeError("state_dict post-hook must return None")

        return registered(self._state_dict_hooks, checked)

    def _register_state_dict_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook` after state_dict(); its result replaces the dictionary."""
        return registered(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, ...)` before a load.

        The other arguments are the lists of missing keys, unexpected keys and errors. It may change
        the dictionary, which is a copy.
        """
        return registered(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(module, incompatible_keys)` after a load; it may change both lists."""
        return registered(self._load_state_dict_post_hooks, hook)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., object], with_module: bool = False
    ) -> HookHandle:
        """Call `hook` before a load as the public method does, but without the module."""
        if with_module:
            return registered(self._load_state_dict_pre_hooks, hook)
        return registered(self._load_state_dict_pre_hooks, lambda _module, *given: hook(*given))
