"""Hooks on gradients: functions that a pass calls, and that may replace the gradients.

The tables of hooks belong to tensors and nodes of the tape (gt._core); the pass calls the functions
of this file, which check a hook's result as PyTorch does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

from gt import _core
from gt._core import GradFn, Tensor
from gt.errors import InvalidType, InvalidUse

Hook: TypeAlias = Callable[..., object]
Table: TypeAlias = dict[int, Hook]
Gradients: TypeAlias = tuple[Tensor | None, ...]

__all__ = ["RemovableHandle"]

_next_id = itertools.count()


class RemovableHandle:
    """Handle of a registered hook: `remove()`, or the end of a `with` block, removes the hook."""

    def __init__(self, table: Table, hook: Hook) -> None:
        self.id = next(_next_id)
        self._table = table
        table[self.id] = hook

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        self._table.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *reason: object) -> None:
        self.remove()


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Calls `hook(gradient)` in each pass in which a gradient of this tensor is computed.

    A result that is not None replaces the gradient; hooks run in the order of registration. A
    leaf's hooks get the sum of all its gradients, before it accumulates.

    Raises:
        InvalidUse: the tensor requires no gradient.
    """
    return RemovableHandle(_core.tensor_hooks(self), hook)


def register_post_accumulate_grad_hook(
    self: Tensor, hook: Callable[[Tensor], object]
) -> RemovableHandle:
    """Calls `hook(leaf)` each time a gradient has accumulated in this leaf's `.grad`.

    Raises:
        InvalidUse: the tensor is no leaf, or requires no gradient.
    """

    def called(leaf: Tensor) -> object:
        result = hook(leaf)
        return None if result is leaf else result

    return RemovableHandle(_core.accumulate_hooks(self), called)


def register_node_hook(
    self: GradFn, fn: Callable[[Gradients, Gradients], Gradients | None]
) -> RemovableHandle:
    """Calls `fn(grad_inputs, grad_outputs)` after the node's gradients are computed.

    A returned tuple replaces the gradients of the inputs.
    """
    return RemovableHandle(self._after, fn)


def register_node_prehook(
    self: GradFn, fn: Callable[[Gradients], Gradients | None]
) -> RemovableHandle:
    """Calls `fn(grad_outputs)` before the node's gradients are computed; a tuple replaces them."""
    return RemovableHandle(self._before, fn)


def of_tensor(table: Table, gradient: Tensor) -> Tensor:
    """The gradient after a tensor's hooks."""
    for hook in tuple(table.values()):
        result = hook(gradient)
        if result is not None:
            gradient = _same_kind(hook, gradient, result)
    return gradient


def of_leaf(table: Table, leaf: Tensor) -> None:
    """Calls the hooks of a leaf whose gradient has accumulated."""
    for hook in tuple(table.values()):
        result = hook(leaf)
        if result is not None and not isinstance(result, Tensor):
            raise InvalidType(f"expected Variable, but hook returned '{type(result).__name__}'")
        if result is not None:
            raise InvalidUse("Tensor post accumulate grad hooks should return None.")


def before_node(table: Table, gradients: Gradients) -> Gradients:
    """Gradients of a node's outputs after the hooks that run before the node."""
    for hook in tuple(table.values()):
        result = hook(gradients)
        if result is not None:
            gradients = _replaced(hook, gradients, result)
    return gradients


def after_node(table: Table, inputs: Gradients, outputs: Gradients) -> Gradients:
    """Gradients of a node's operands after the hooks that run behind the node."""
    for hook in tuple(table.values()):
        result = hook(inputs, outputs)
        if result is not None:
            inputs = _replaced(hook, inputs, result)
    return inputs


def _replaced(hook: Hook, before: Gradients, after: object) -> Gradients:
    if isinstance(after, Tensor):
        after = (after,)
    if not isinstance(after, tuple):
        raise InvalidType(f"expected tuple, but hook returned '{type(after).__name__}'")
    if len(after) != len(before):
        raise InvalidUse(
            f"hook '{_name(hook)}' has returned an incorrect number of values "
            f"(got {len(after)}, but expected {len(before)})"
        )
    return tuple(_one(hook, old, new) for old, new in zip(before, after, strict=True))


def _one(hook: Hook, before: Tensor | None, after: object) -> Tensor | None:
    if after is None:
        return before
    if before is None:
        raise InvalidUse("can't replace a None gradient with a non-None value")
    return _same_kind(hook, before, after)


def _same_kind(hook: Hook, before: Tensor, after: object) -> Tensor:
    if not isinstance(after, Tensor):
        raise InvalidType(f"expected Variable, but hook returned '{type(after).__name__}'")
    if after.dtype != before.dtype:
        raise InvalidUse(
            f"hook '{_name(hook)}' has changed the type of value "
            f"(was {before.type()} got {after.type()})"
        )
    if after.shape != before.shape:
        raise InvalidUse(f"hook '{_name(hook)}' has changed the size of value")
    return after


def _name(hook: Hook) -> str:
    name: Any = getattr(hook, "__name__", None)
    return name if isinstance(name, str) else repr(hook)


def install() -> None:
    """Attach the methods to tensors and nodes of the tape."""
    kinds: dict[type, dict[str, Callable[..., object]]] = {
        Tensor: {
            "register_hook": register_hook,
            "register_post_accumulate_grad_hook": register_post_accumulate_grad_hook,
        },
        GradFn: {"register_hook": register_node_hook, "register_prehook": register_node_prehook},
    }
    for kind, methods in kinds.items():
        for name, method in methods.items():
            setattr(kind, name, method)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
