"""Grad mode and gradients of chosen tensors. The tape itself is in gt._core."""

import functools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import ParamSpec, TypeVar

from gt import _core
from gt._core import Tensor
from gt.creation import zeros_like
from gt.errors import InvalidValue, NotDifferentiable, NotSupported
from gt.variable import Variable

P = ParamSpec("P")
R = TypeVar("R")

__all__ = [
    "Variable",
    "enable_grad",
    "grad",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
]


class _GradMode:
    """Sets this thread's grad mode for a `with` block or a decorated function."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(_core.set_grad_enabled(self._enabled))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _core.set_grad_enabled(self._before.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def within(*args: P.args, **kwargs: P.kwargs) -> R:
            with _GradMode(self._enabled):
                return function(*args, **kwargs)

        return within


class no_grad(_GradMode):  # noqa: N801 - PyTorch's name
    """Nothing is recorded for the backward pass."""

    def __new__(cls, function: Callable[P, R] | None = None) -> "no_grad":
        if callable(function):
            return cls()(function)  # type: ignore[return-value]
        return super().__new__(cls)

    def __init__(self, function: object = None) -> None:  # noqa: ARG002 - `@no_grad` without call
        super().__init__(False)


class enable_grad(_GradMode):  # noqa: N801 - PyTorch's name
    """Recording is on, also within `no_grad`."""

    def __init__(self) -> None:
        super().__init__(True)


class inference_mode(_GradMode):  # noqa: N801 - PyTorch's name
    """Like `no_grad`: values are immutable, so there is nothing further to save."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)


class set_grad_enabled(_GradMode):  # noqa: N801 - PyTorch's name
    """Sets grad mode at once; as a `with` block, until its end."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        self._at_call = _core.set_grad_enabled(mode)

    def __enter__(self) -> None:
        self._before.append(self._at_call)


def is_grad_enabled() -> bool:
    """Whether operations of this thread are recorded."""
    return _core.is_grad_enabled()


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of `outputs` for `inputs`; no `.grad` changes.

    Args:
        grad_outputs: gradients that arrive at `outputs`; ones for scalars.
        retain_graph: keep what the backward pass frees (default: `create_graph`).
        create_graph: record the backward pass itself, for higher derivatives.
        only_inputs: accepted: no other gradients are computed.
        allow_unused: give None for an input that no output depends on.
        is_grads_batched: not supported.
        materialize_grads: give zeros for an input that no output depends on.

    Raises:
        NotDifferentiable: an input is unused and that is not allowed.
        NotSupported: several gradients at once.
        InvalidValue: zeros are asked for, and unused inputs refused.
    """
    del only_inputs
    if is_grads_batched:
        raise NotSupported("grad: is_grads_batched is not supported; call it once for each")
    if materialize_grads and allow_unused is False:
        raise InvalidValue(
            "Expected allow_unused to be True or not passed when materialize_grads=True, "
            "but got: allow_unused=False."
        )
    listed = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    operands = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    seeds = (
        [grad_outputs]
        if isinstance(grad_outputs, Tensor)
        else list(grad_outputs or [None] * len(listed))
    )
    keep = create_graph if retain_graph is None else retain_graph
    gradients = _core.grad(listed, seeds, operands, keep, create_graph)
    if materialize_grads:
        pairs = zip(gradients, operands, strict=True)
        gradients = [zeros_like(x) if item is None else item for item, x in pairs]
    if not allow_unused and any(item is None for item in gradients):
        raise NotDifferentiable(
            "One of the differentiated Tensors appears to not have been used in the graph. "
            "Set allow_unused=True if this is the desired behavior."
        )
    return tuple(gradients)


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
