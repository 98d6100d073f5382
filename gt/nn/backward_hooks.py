"""Backward hooks of one call of a module, which get the gradients of its inputs and outputs.

Tensors among arguments and outputs pass through an identity function on the tape; the hooks get the
gradients that arrive there in the backward pass.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import gt
from gt._core import GradFn, Tensor
from gt.autograd import hooks as gradient_hooks
from gt.autograd.function import Function, FunctionCtx

Gradients: TypeAlias = tuple[Tensor | None, ...]
UserHook: TypeAlias = Callable[..., Any]


class BackwardHookFunction(Function):
    """Passes tensors on, and calls `watch` with the gradients that arrive for them."""

    _guards_views = False  # a write through them has its gradient here

    @staticmethod
    def forward(
        ctx: FunctionCtx, watch: Callable[[Gradients], Gradients], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(x for x in tensors if not x.requires_grad))
        ctx.watch = watch  # type: ignore[attr-defined] # a context takes whatever is kept
        ctx.kinds = [(x.shape, x.dtype) for x in tensors]  # type: ignore[attr-defined]
        return tensors

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        watched = ctx.watch(gradients)  # type: ignore[attr-defined]
        pairs = zip(watched, ctx.kinds, strict=True)  # type: ignore[attr-defined]
        return None, *(gt.zeros(*kind[:1], dtype=kind[1]) if g is None else g for g, kind in pairs)


class BackwardHooks:
    """The backward hooks of `module` for one call; `inputs` comes before `outputs`."""

    def __init__(self, module: object, before: list[UserHook], after: list[UserHook]) -> None:
        self._module, self._before, self._after = module, before, after
        self._kinds: list[tuple[Any, gt.dtype] | None] | None = (
            None  # of arguments; None: unwatched
        )
        self._count = 0
        self._grad_outputs: Gradients | None = None

    def inputs(self, args: tuple[object, ...]) -> tuple[object, ...]:
        """The arguments, watched if one requires a gradient."""
        self._count = len(args)
        watched = _through(self._at_inputs, args)
        if watched is not args:
            self._kinds = [(x.shape, x.dtype) if isinstance(x, Tensor) else None for x in args]
        return watched

    def outputs(self, result: object) -> object:
        """The module's result, watched if it is a tensor or a tuple with one."""
        if isinstance(result, tuple):
            places = [place for place, x in enumerate(result) if isinstance(x, Tensor)]
            return _through(lambda found: self._at_outputs(found, places, len(result)), result)
        if not isinstance(result, Tensor):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of "
                f"Tensors but received {type(result)}",
                stacklevel=5,
            )
            return result
        return _through(lambda found: self._at_outputs(found, [0], 1), (result,))[0]

    def _at_outputs(self, gradients: Gradients, places: list[int], count: int) -> Gradients:
        grad_outputs: Gradients = _spread(gradients, places, count)
        for hook in self._before:
            changed = hook(self._module, grad_outputs)
            if changed is None:
                continue
            if len(changed) != count:
                raise RuntimeError(
                    "Backward pre hook returned an invalid number of grad_output, "
                    f"got {len(changed)}, but expected {count}"
                )
            grad_outputs = changed
        if self._kinds is None:
            self._without_inputs(grad_outputs)
        else:
            self._grad_outputs = grad_outputs
        changed = tuple(grad_outputs[place] for place in places)
        return _replaced(gradients, changed) if self._before else gradients

    def _without_inputs(self, grad_outputs: Gradients) -> None:
        """Calls the hooks with the gradients of the outputs, if no argument requires one."""
        if self._after:
            warnings.warn(
                "Full backward hook is firing when gradients are computed with respect to module "
                "outputs since no inputs require gradients. See torch.nn.Module's "
                "register_full_backward_hook for more details.",
                stacklevel=2,
            )
        for hook in self._after:
            result = hook(self._module, (None,) * self._count, grad_outputs)
            if result is not None and not (
                isinstance(result, tuple) and all(x is None for x in result)
            ):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients."
                )

    def _at_inputs(self, gradients: Gradients) -> Gradients:
        grad_outputs, self._grad_outputs = self._grad_outputs, None
        if grad_outputs is None or not self._after:  # a second derivative: not through the outputs
            return gradients
        assert self._kinds is not None, self._module
        places = [place for place, kind in enumerate(self._kinds) if kind is not None]
        # PyTorch shows zeros for a tensor that gets no gradient.
        results = [
            gt.zeros(self._kinds[place][0], dtype=self._kinds[place][1]) if x is None else x  # type: ignore[index]
            for x, place in zip(gradients, places, strict=True)
        ]
        grad_inputs: Gradients = _spread(tuple(results), places, self._count)
        for hook in self._after:
            changed = hook(self._module, grad_inputs, grad_outputs)
            if changed is None:
                continue
            if len(changed) != self._count:
                raise RuntimeError(
                    "Backward hook returned an invalid number of grad_input, "
                    f"got {len(changed)}, but expected {self._count}"
                )
            grad_inputs = changed
        return _replaced(tuple(results), tuple(grad_inputs[place] for place in places))


def attach_to_last_operation(
    module: object, hooks: list[UserHook], args: object, result: object
) -> None:
    """Attaches PyTorch's old backward hooks to the node of the first tensor in `result`."""
    first: Any = result
    while not isinstance(first, Tensor):
        tensors = isinstance(first, dict) and [x for x in first.values() if isinstance(x, Tensor)]
        first = tensors[0] if tensors else first[0]
    node = first.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(lambda before, after, hook=hook: hook(module, before, after))
    if missing := _what_is_missing(args, result, node):
        warnings.warn(missing, FutureWarning, stacklevel=4)


def _what_is_missing(args: object, result: object, node: GradFn) -> str | None:
    """The gradients that an old hook does not get, if any; the texts begin as PyTorch's."""
    results, inputs = _tensors(result), _tensors(args)
    kinds = "a single Tensor or a tuple of Tensors"
    if results is None:
        use = f"non-full backward hooks on a Module that does not return {kinds}"
        what = "of the grad_output"
    elif inputs is None:
        use = f"non-full backward hooks on a Module that does not take as input {kinds}"
        what = "of the grad_input"
    elif len({x.grad_fn for x in results if x.grad_fn is not None}) > 1:
        use = "a non-full backward hook when outputs are generated by different autograd Nodes"
        what = "grad_output"
    elif {x.grad_fn for x in inputs if x.grad_fn is not None} != {
        n for n, _ in node.next_functions
    }:
        use = "a non-full backward hook when the forward contains multiple autograd Nodes"
        what = "grad_input"
    else:
        return None
    return (
        f"Using {use} is deprecated and will be removed in future versions. This hook will be "
        f"missing some {what}. Please use register_full_backward_hook to get the documented "
        "behavior."
    )


def _tensors(value: object) -> tuple[Tensor, ...] | None:
    listed = (value,) if isinstance(value, Tensor) else value
    if isinstance(listed, tuple) and all(isinstance(x, Tensor) for x in listed):
        return listed
    return None


def _through(
    watch: Callable[[Gradients], Gradients], values: tuple[object, ...]
) -> tuple[object, ...]:
    """`values` with their tensors watched; unchanged if none requires a gradient."""
    places = [place for place, x in enumerate(values) if isinstance(x, Tensor)]
    tensors: list[Any] = [values[place] for place in places]
    if not gt.is_grad_enabled() or not any(x.requires_grad for x in tensors):
        return values
    watched = dict(zip(places, BackwardHookFunction.apply(watch, *tensors), strict=True))
    listed = [watched.get(place, x) for place, x in enumerate(values)]
    return tuple(listed) if type(values) is tuple else type(values)(*listed)


def _spread(found: Gradients, places: list[int], count: int) -> Gradients:
    """`found` at `places` in a tuple of `count`, None elsewhere."""
    spread: list[Tensor | None] = [None] * count
    for place, gradient in zip(places, found, strict=True):
        spread[place] = gradient
    return tuple(spread)


def _replaced(before: Gradients, after: Gradients) -> Gradients:
    """`after`, checked like a node hook's result: equal shapes and dtypes."""

    def hook(_inputs: Gradients, _outputs: Gradients) -> Gradients:
        return after

    return gradient_hooks.after_node({0: hook}, before, ())
