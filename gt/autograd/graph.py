"""The tape for programs: hooks on saved tensors, hooks on several gradients at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from gt import _core
from gt._core import GradFn, Tensor
from gt.autograd.hooks import RemovableHandle, register_hook
from gt.compat import misses
from gt.errors import InvalidValue

Node: TypeAlias = GradFn

__all__ = [
    "Node",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


def increment_version(tensor: Tensor | Sequence[Tensor]) -> None:
    """Counts a write of each tensor, so that a backward that needs its former value raises."""
    listed = [tensor] if isinstance(tensor, Tensor) else list(tensor)
    outer = _core.set_grad_enabled(False)
    try:
        for one in listed:
            one.copy_(one)
    finally:
        _core.set_grad_enabled(outer)


class saved_tensors_hooks:  # noqa: N801 - PyTorch's name
    """Within the `with`, tensors saved for backward pass through two functions.

    `pack_hook(tensor)` is called when an operation saves a tensor, and its result is kept in the
    tensor's place; `unpack_hook(kept)` returns the tensor when backward needs it. The innermost
    `with` counts. A tensor that the pack hook keeps must not be written.

    Args:
        pack_hook: gets a tensor without gradient history.
        unpack_hook: returns a tensor of the same shape and dtype.
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], object], unpack_hook: Callable[..., Tensor]
    ) -> None:
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        _core.push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *reason: object) -> None:
        _core.pop_saved_tensors_hooks()


class save_on_cpu(saved_tensors_hooks):  # noqa: N801 - PyTorch's name
    """Accepted without effect: the dispatcher decides where values are, so saved ones stay.

    Args:
        pin_memory: no meaning here.
        device_type: no meaning here.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        del pin_memory, device_type
        super().__init__(lambda tensor: tensor.detach(), lambda tensor: tensor)


def register_multi_grad_hook(
    tensors: Sequence[Tensor],
    fn: Callable[[Sequence[Tensor | None]], None] | Callable[[Tensor], None],
    *,
    mode: Literal["all", "any"] = "all",
) -> RemovableHandle:
    """Calls `fn` once a pass has computed the gradients of all `tensors`, or of any of them.

    With "all" it gets a gradient for each, and is called when the last one has been computed: a
    pass that reaches only some of them never calls it (PyTorch also skips it then).

    Raises:
        InvalidValue: `mode` is neither "all" nor "any".
    """
    if mode not in ("all", "any"):
        raise InvalidValue(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock = threading.Lock()
    arrived: dict[int, Tensor] = {}

    def one(place: int) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            with lock:
                arrived[place] = gradient
                is_complete = len(arrived) == (1 if mode == "any" else len(tensors))
                gradients = [arrived.get(other) for other in range(len(tensors))]
                if len(arrived) == len(tensors):
                    arrived.clear()
            if is_complete:
                fn(gradient if mode == "any" else gradients)  # type: ignore[arg-type]

        return hook

    handles = [register_hook(tensor, one(place)) for place, tensor in enumerate(tensors)]
    return _Handles(handles)


class _Handles(RemovableHandle):
    """Several handles as one."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        super().__init__({}, lambda: None)
        self._handles = handles

    def remove(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
