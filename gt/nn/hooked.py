"""Registration of hooks on a module: around its forward, its backward, its saving and its loading.

Module calls those of saving and loading, hooked_call.py the others; hooks.py has what a registered
hook is. The tables have PyTorch's names, because programs ask whether they are empty.
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
    """The part of Module that programs hang functions on."""

    _forward_pre_hooks: Hooks
    _forward_hooks: Hooks
    _backward_pre_hooks: Hooks
    _backward_hooks: Hooks
    _state_dict_pre_hooks: Hooks
    _state_dict_hooks: Hooks
    _load_state_dict_pre_hooks: Hooks
    _load_state_dict_post_hooks: Hooks
    _is_full_backward_hook: bool | None = None  # of which kind those of _backward_hooks are

    def register_forward_pre_hook(
        self, hook: Callable[..., object], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook(module, args)` before each forward.

        What it returns, if not None, replaces the arguments.
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

        What it returns, if not None, replaces the output. With `always_call` it is called after a
        forward that raised too, with None.
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

        `grad_output` is a tuple with the gradient of each output, None for those that are no
        tensors or get none; a tuple that the hook returns replaces it.
        """
        return HookHandle(self._backward_pre_hooks, hook, prepend=prepend, with_kwargs=False)

    def register_full_backward_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> HookHandle:
        """Call `hook(module, grad_input, grad_output)` when the module's gradients are there.

        Both are tuples over the positional arguments and over the outputs, None where there is no
        tensor; a tuple that the hook returns replaces `grad_input`. Where no argument requires a
        gradient, the hook is called with the gradients of the outputs. Writing an argument or an
        output in place, which PyTorch refuses beside such a hook, has its gradient here, and the
        hook gets those of the tensors that the module was called with and that it returned.

        Raises:
            RuntimeError: the module has hooks of `register_backward_hook`.
        """
        self._say_kind_of_backward_hooks(is_full=True)
        return HookHandle(self._backward_hooks, hook, prepend=prepend, with_kwargs=False)

    def register_backward_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(module, grad_input, grad_output)` with the gradients of the last operation.

        PyTorch's old form: what `grad_input` has depends on that operation, whose operands GT may
        order or fuse otherwise; `register_full_backward_hook` says what its name says.

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
            RuntimeError: at the save, where the hook returns something.
        """

        def checked(*given: object) -> None:
            if hook(*given) is not None:
                raise RuntimeError("state_dict post-hook must return None")

        return registered(self._state_dict_hooks, checked)

    def _register_state_dict_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook` after state_dict(), whose dictionary is replaced by what the hook returns."""
        return registered(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., object]) -> HookHandle:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, ...)` before a load.

        The rest are the lists of missing keys, unexpected keys and errors. It may change the
        dictionary, which is a copy.
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
