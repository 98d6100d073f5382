"""`Function`: an operation with a user's forward and backward, as one node of the tape."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gt import _core
from gt._core import GradFn, Tensor
from gt.compat import misses
from gt.errors import InvalidType, InvalidUse, NotSupported

R = TypeVar("R")

__all__ = ["Function", "FunctionCtx", "InplaceFunction", "once_differentiable"]

_INCOMPLETE = (
    "You must implement either the backward or vjp method for your custom autograd.Function to use "
    "it with backward mode AD."
)
_LEGACY = (
    "Legacy autograd function with non-static forward method is deprecated. Please use new-style "
    "autograd function with static forward method. "
    "(Example: https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
)


class FunctionCtx:
    """`ctx`: values that a function's forward leaves to its backward.

    Attributes that the user sets are kept; `needs_input_grad` has a bool for each argument, True if
    it requires a gradient.
    """

    needs_input_grad: tuple[bool, ...] = ()

    def __init__(self, function: type[Function]) -> None:
        self._function = function
        self._kept: tuple[Tensor | None, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._not_differentiable: tuple[Tensor, ...] = ()
        self._materializes = True
        # Positions of the tensors among the arguments, and the number of arguments.
        self._places: list[int] = []
        self._count = 0
        # Shape and dtype of each output that is a tensor.
        self._results: list[tuple[tuple[int, ...], _core.dtype] | None] = []
        self._node: GradFn | None = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for backward, which finds them as `saved_tensors`.

        Raises:
            InvalidType: one is neither a tensor nor None.
        """
        for place, tensor in enumerate(tensors):
            if tensor is not None and not isinstance(tensor, Tensor):
                raise InvalidType(
                    "save_for_backward can only save variables, but argument "
                    f"{place} is of type {type(tensor).__name__}"
                )
        self._kept = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Accepted: there is no forward mode that would read them."""

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors that `save_for_backward` was called with.

        Raises:
            InvalidUse: a pass has freed them, or one has been written in place since.
        """
        return () if self._node is None else self._node.saved_tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Marks arguments that the forward wrote in place; each must be among its results."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Marks outputs that have no gradient."""
        self._not_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Chooses zeros (True, the default) or None for outputs at which no gradient
        has arrived.
        """
        self._materializes = value

    def _differentiate(
        self, node: GradFn, gradients: tuple[Tensor | None, ...]
    ) -> list[Tensor | None]:
        """The gradients of the arguments that are tensors; called by the pass."""
        if self._materializes:
            pairs = zip(gradients, self._results, strict=True)
            gradients = tuple(
                _zeros(*result) if gradient is None and result is not None else gradient
                for gradient, result in pairs
            )
        outer, self._node = self._node, node
        try:
            returned = _backward_of(self._function)(self, *gradients)
        finally:
            self._node = outer
        return self._of_tensors(returned if isinstance(returned, tuple) else (returned,))

    def _of_tensors(self, returned: tuple[object, ...]) -> list[Tensor | None]:
        name = f"{self._function.__name__}Backward"
        while len(returned) > self._count and returned[-1] is None:
            returned = returned[:-1]
        if len(returned) != self._count:
            raise InvalidUse(
                f"function {name} returned an incorrect number of gradients "
                f"(expected {self._count}, got {len(returned)})"
            )
        gradients: list[Tensor | None] = []
        for place, gradient in enumerate(returned):
            if place not in self._places:
                if gradient is not None:
                    raise InvalidUse(
                        f"function {name} returned a gradient different than None at position "
                        f"{place + 1}, but the corresponding forward input was not a Variable"
                    )
            elif gradient is None or isinstance(gradient, Tensor):
                gradients.append(gradient)
            else:
                raise InvalidUse(f"expected Variable or None (got {type(gradient).__name__})")
        return gradients


class Function:
    """An operation whose gradient is written by hand: subclass it, and call `apply`.

    `forward(ctx, *args)` computes the outputs, unrecorded; `backward(ctx, *grad_outputs)` returns a
    gradient for each argument, None for one that is no tensor or needs none. Both are static. With
    `setup_context(ctx, inputs, output)`, `forward(*args)` takes no `ctx`. A backward that emits
    differentiable operations can be differentiated again.

    `vmap` and `jvp`, which PyTorch uses in transforms of functions, are never called.
    """

    generate_vmap_rule = False
    # True if a result that is a view must not be written: its gradient would bypass backward.
    _guards_views = True

    def __init__(self, *args: object, **kwargs: object) -> None:
        """An instance has no use; only `apply` of the class is called."""

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Instances are not callable; that was PyTorch's old form.

        Raises:
            InvalidUse: always; call `apply` of the class.
        """
        raise InvalidUse(_LEGACY)

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Computes the outputs; `forward(ctx, *args)`, or `forward(*args)` with `setup_context`."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Saves values for backward from the arguments and from forward's result."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradient of each argument from those of the outputs."""
        raise NotImplementedError(_INCOMPLETE)

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Another name of `backward`."""
        raise NotImplementedError(_INCOMPLETE)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The forward derivative, which GT never asks for."""
        raise NotSupported("jvp of a Function: GT has no forward-mode derivatives")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs forward, and records the function where an argument requires a gradient.

        Raises:
            InvalidUse: an argument marked as dirty is a leaf, or is not returned.
        """
        has_setup = cls.setup_context is not Function.setup_context
        args = _positional(cls, args, kwargs, has_setup=has_setup)
        tensors = [x if isinstance(x, Tensor) else None for x in args]
        needs = tuple(x is not None and x.requires_grad for x in tensors)
        is_recorded = any(needs) and _core.is_grad_enabled()
        application = _core.Application(tensors) if is_recorded else None
        ctx = FunctionCtx(cls)
        ctx.needs_input_grad, ctx._count = needs, len(args)
        ctx._places = [place for place, x in enumerate(tensors) if x is not None]
        outer = _core.set_grad_enabled(False)
        try:
            returned = cls.forward(*args) if has_setup else cls.forward(ctx, *args)
            if has_setup:
                cls.setup_context(ctx, args, returned)
        finally:
            _core.set_grad_enabled(outer)
        if application is None:
            return returned
        outputs = returned if isinstance(returned, tuple) else (returned,)
        shown = _record(ctx, application, tensors, outputs)
        return tuple(shown) if isinstance(returned, tuple) else shown[0]


class InplaceFunction(Function):
    """PyTorch's old base of functions with an `inplace` argument."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward whose gradients cannot be differentiated again: an attempt raises."""

    @functools.wraps(backward)
    def unrecorded(ctx: object, *gradients: Any) -> Any:
        outer = _core.set_grad_enabled(False)
        try:
            returned = backward(ctx, *gradients)
        finally:
            _core.set_grad_enabled(outer)
        recorded = any(isinstance(x, Tensor) and x.requires_grad for x in gradients)
        if not outer or not recorded:
            return returned
        listed = returned if isinstance(returned, tuple) else (returned,)
        leaves = [x.detach().requires_grad_() if isinstance(x, Tensor) else x for x in listed]
        return _Once.apply(*leaves)

    return unrecorded


class _Once(Function):
    """Passes tensors on, and refuses gradients of them."""

    @staticmethod
    def forward(ctx: FunctionCtx, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        return tensors

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> Any:
        raise InvalidUse(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def _backward_of(function: type[Function]) -> Callable[..., object]:
    has_vjp = function.vjp is not Function.vjp
    if has_vjp and function.backward is not Function.backward:
        raise InvalidUse(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You "
            "should only implement one of them."
        )
    chosen: Callable[..., object] = function.vjp if has_vjp else function.backward
    return chosen


def _positional(
    function: type[Function],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    has_setup: bool,
) -> tuple[Any, ...]:
    """All arguments by position; with `setup_context` also their defaults."""
    if not kwargs and not has_setup:
        return args
    signature = inspect.signature(function.forward)
    first = () if has_setup else (None,)  # ctx
    bound = signature.bind(*first, *args, **kwargs)
    if has_setup:
        bound.apply_defaults()
    if bound.kwargs:
        raise NotSupported(
            f"{function.__name__}.apply: keyword-only arguments {sorted(bound.kwargs)}; "
            "give them by position"
        )
    return bound.args[len(first) :]


def _zeros(shape: tuple[int, ...], dtype: _core.dtype) -> Tensor:
    zeros: Tensor = _core.call("full", size=shape, value=0, dtype=dtype)
    return zeros


def _record(
    ctx: FunctionCtx,
    application: _core.Application,
    arguments: Sequence[Tensor | None],
    outputs: tuple[object, ...],
) -> list[object]:
    """Makes the node; returns the outputs, each a new variable except those written in place."""
    inputs = [x for x in arguments if x is not None]
    _check_dirty(ctx, outputs)
    shown: list[object] = []
    recorded: list[Tensor | None] = []
    replaced: dict[int, Tensor] = {}
    for output in outputs:
        if not isinstance(output, Tensor):
            shown.append(output)
            recorded.append(None)
            continue
        is_dirty = _among(output, ctx._dirty)
        has_gradient = output.is_floating_point() and not _among(output, ctx._not_differentiable)
        variable = output
        if not is_dirty and (output.requires_grad or _among(output, [*inputs, *recorded])):
            is_view = _among(output, inputs) or output._is_view()
            is_guarded = is_view and has_gradient and ctx._function._guards_views
            variable = output.view(output.shape) if is_guarded else output.detach()
            if not _among(output, inputs):
                replaced[id(output)] = variable
        shown.append(variable)
        recorded.append(variable if has_gradient else None)
    ctx._results = [(tuple(x.shape), x.dtype) if isinstance(x, Tensor) else None for x in outputs]
    saved_tensors = [None if x is None else replaced.get(id(x), x) for x in ctx._kept]
    ctx._kept, ctx._dirty, ctx._not_differentiable = (), (), ()
    guards = ctx._function._guards_views
    application.record(ctx._function.__name__, ctx, recorded, saved_tensors, guards)
    return shown


def _among(tensor: Tensor, others: Sequence[Tensor | None]) -> bool:
    return any(tensor is other for other in others)


def _check_dirty(ctx: FunctionCtx, outputs: tuple[object, ...]) -> None:
    for tensor in ctx._dirty:
        if not any(tensor is output for output in outputs):
            raise InvalidUse(
                "Some elements marked as dirty during the forward method were not returned as "
                "output. The inputs that are modified inplace must all be outputs of the Function."
            )
        if tensor.is_leaf and tensor.requires_grad:
            raise InvalidUse(
                "a leaf Variable that requires grad has been used in an in-place operation."
            )
        if tensor._is_view() and tensor.requires_grad:
            raise NotSupported(
                f"{ctx._function.__name__}.apply: a view of a tensor that requires a gradient is "
                "marked as dirty; write into a copy (`x.clone()`) instead"
            )


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
