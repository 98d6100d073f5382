"""Checkpoints: intermediate values of a function are recomputed in backward rather than stored.

Without reentry the function is recorded as usual, with a placeholder for each saved tensor; the
first one that backward needs runs the function again and fills them all. With reentry the function
is one node of the tape; its backward runs it again, then a pass of its own; gradients go to its
tensor arguments and to leaves.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias, TypeVar

from gt import _core
from gt._core import GradFn, Tensor
from gt.amp import autocast_state
from gt.autograd.function import Function
from gt.autograd.grad_mode import enable_grad, no_grad
from gt.autograd.graph import saved_tensors_hooks
from gt.autograd.passes import backward
from gt.compat import misses
from gt.errors import InvalidUse, InvalidValue, NotSupported
from gt.tensors import draws

Context: TypeAlias = AbstractContextManager[object]
R = TypeVar("R")
Argument: TypeAlias = Any  # arguments and results of the user's function

__all__ = [
    "CheckpointError",
    "checkpoint",
    "checkpoint_sequential",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_early_stop",
    "set_device_states",
]

_IMPLICIT = (
    "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. In a future "
    "release, calling checkpoint without use_reentrant will raise an exception. "
    "use_reentrant=False is recommended, but if you need to preserve the current default behavior, "
    "you can pass use_reentrant=True."
)
_NO_GRADIENTS = "None of the inputs have requires_grad=True. Gradients will be None"
_NOT_FOR_GRAD = (
    "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an "
    "`inputs` parameter to .backward(). To resolve this error, you can either set "
    "use_reentrant=False, or call .backward() without passing the `inputs` argument."
)


class CheckpointError(RuntimeError):
    """A function saves other tensors for backward when it runs again."""


class _EarlyStop:
    """Setting of set_checkpoint_early_stop: True ends a recomputation at the last tensor needed;
    None leaves it to each checkpoint's argument.
    """

    chosen: bool | None = None


def noop_context_fn() -> tuple[Context, Context]:
    """Contexts that do nothing, for the forward and for running it again."""
    return nullcontext(), nullcontext()


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Set, inside the block, whether a recomputation ends at the last tensor needed."""
    before, _EarlyStop.chosen = _EarlyStop.chosen, enable
    try:
        yield
    finally:
        _EarlyStop.chosen = before


def checkpoint(
    function: Callable[..., R],
    *args: Argument,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    context_fn: Callable[[], tuple[Context, Context]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Argument,
) -> R:
    """Call `function(*args, **kwargs)`, and again in backward instead of storing intermediate
    values.

    Args:
        function: function that computes the same each time.
        args: its arguments.
        use_reentrant: run a pass within the pass (True, also the default, with a warning), which
            does not support `autograd.grad` or keyword arguments and needs an argument that
            requires a gradient; or record as usual (False), without these limits.
        preserve_rng_state: draw the same random numbers again.
        context_fn: gives contexts for the forward and for running it again; not with reentry.
        determinism_check: "default" compares shapes and dtypes of both runs, "none" does not.
        debug: not supported.
        early_stop: end the second run at the last tensor that is needed.
        kwargs: its keyword arguments.

    Raises:
        InvalidValue: arguments that the reentrant form does not take, or an unknown check.
        CheckpointError: in backward, where the second run saves other tensors.
        NotSupported: `debug`.
    """
    if debug:
        raise NotSupported("checkpoint: debug=True; the error names both runs' tensors without it")
    if use_reentrant is None:
        warnings.warn(_IMPLICIT, stacklevel=2)
        use_reentrant = True
    if not use_reentrant:
        return _recorded(
            function,
            args,
            kwargs,
            _Options(preserve_rng_state, context_fn, determinism_check, early_stop),
        )
    if kwargs:
        raise InvalidValue(f"Unexpected keyword arguments: {','.join(kwargs)}")
    if context_fn is not noop_context_fn:
        raise InvalidValue("Passing `context_fn` is only supported when use_reentrant=False.")
    if not any(isinstance(x, Tensor) and x.requires_grad for x in args):
        warnings.warn(_NO_GRADIENTS, stacklevel=2)
    results: R = _Reentrant.apply(function, preserve_rng_state, *args)
    return results


def checkpoint_sequential(
    functions: Sequence[Callable[..., Argument]] | Any,  # noqa: ANN401 - or a Sequential
    segments: int,
    input: Argument,
    use_reentrant: bool | None = None,
    **kwargs: Argument,
) -> Argument:
    """Calls functions one after the other in segments, all but the last of them checkpointed.

    Args:
        functions: modules or functions of one argument, or a Sequential.
        segments: number of segments.
        input: argument of the first function.
        use_reentrant: as for `checkpoint`.
        kwargs: `preserve_rng_state`, as for `checkpoint`.

    Raises:
        InvalidValue: other keyword arguments.
    """
    preserve = bool(kwargs.pop("preserve_rng_state", True))
    if kwargs:
        raise InvalidValue(f"Unexpected keyword arguments: {','.join(kwargs)}")
    if use_reentrant is None:
        warnings.warn(_IMPLICIT, stacklevel=2)
        use_reentrant = True
    listed = list(functions.children()) if callable(functions) else list(functions)
    size = len(listed) // segments
    if not size:
        raise InvalidValue(f"{len(listed)} functions in {segments} segments")
    last = size * (segments - 1)
    for start in range(0, last, size):
        segment = functools.partial(_run, listed[start : start + size])
        input = checkpoint(segment, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _run(listed[last:], input)


def get_device_states(*args: Argument) -> tuple[list[int], list[Tensor]]:
    """The device of each tensor among `args` and the state of its generator.

    One generator draws for all workers: its state is returned once, for device 0.

    Args:
        args: of a function; lists and dictionaries of tensors, too.
    """
    return ([0], [draws.get_rng_state()]) if any(map(_has_tensor, args)) else ([], [])


def set_device_states(
    devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None
) -> None:
    """Restore states from `get_device_states`.

    Args:
        devices: its first result.
        states: its second one.
        device_type: accepted: all draw by one generator.
    """
    del device_type
    for _, state in zip(devices, states, strict=False):
        draws.set_rng_state(state)


def _has_tensor(value: Argument) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_tensor, value.values()))
    return isinstance(value, Tensor) or (
        isinstance(value, list | tuple) and any(map(_has_tensor, value))
    )


def _run(functions: Sequence[Callable[..., Argument]], value: Argument) -> Argument:
    for function in functions:
        value = function(value)
    return value


class _State:
    """Autocast settings of this thread and state of the generator; the `with` block
    restores both.
    """

    def __init__(self, *, preserves_rng: bool) -> None:
        self._autocast = autocast_state.Kept()
        self._random = _Random(preserved=preserves_rng)

    def __enter__(self) -> None:
        self._autocast.__enter__()
        self._random.__enter__()

    def __exit__(self, *reason: object) -> None:
        self._random.__exit__(*reason)
        self._autocast.__exit__(*reason)


class _Random:
    """State of the generator; the `with` block restores it."""

    def __init__(self, *, preserved: bool) -> None:
        self._state = _core.rng_state() if preserved else None
        self._outer = self._state

    def __enter__(self) -> None:
        if self._state is not None:
            self._outer = _core.rng_state()
            _core.set_rng_state(*self._state)

    def __exit__(self, *reason: object) -> None:
        if self._outer is not None:
            _core.set_rng_state(*self._outer)


# ---- recorded as usual, with places for what would be saved ----


class _Options:
    """Options of a recomputation."""

    def __init__(
        self,
        preserve_rng_state: bool,
        context_fn: Callable[[], tuple[Context, Context]],
        determinism_check: str,
        early_stop: bool,
    ) -> None:
        if determinism_check not in ("default", "none"):
            raise InvalidValue(
                "determinism_check should be one of ['default', 'none'], but got "
                f"{determinism_check}"
            )
        self.state = _State(preserves_rng=preserve_rng_state)
        self.contexts = context_fn()
        self.compares = determinism_check == "default"
        chosen = _EarlyStop.chosen
        self.stops_early = early_stop if chosen is None else chosen


class _Place:
    """Placeholder for a saved tensor; it has the tensor once the function has run again."""

    __slots__ = ("__weakref__", "description", "run", "tensor")

    def __init__(self, run: _Run, description: tuple[object, ...]) -> None:
        self.run = run
        self.description = description
        self.tensor: Tensor | None = None


class _Stop(Exception):
    """Ends a recomputation: all needed tensors are there."""


class _Run:
    """A function whose saved tensors are computed when they are needed."""

    def __init__(
        self, function: Callable[..., Argument], kwargs: dict[str, Argument], options: _Options
    ) -> None:
        self._function, self._kwargs, self._options = function, kwargs, options
        self._places: list[weakref.ref[_Place]] = []
        self.arguments: GradFn | None = None

    def pack(self, tensor: Tensor) -> _Place:
        """A placeholder for a tensor, which is released."""
        place = _Place(self, _described(tensor))
        self._places.append(weakref.ref(place))
        return place

    def unpack(self, place: _Place) -> Tensor:
        """The tensor of a place."""
        if place.tensor is None:
            self._again()
        assert place.tensor is not None, "running again has filled every place or raised"
        return place.tensor

    def _again(self) -> None:
        count = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal count
            value = tensor.detach()
            if count < len(self._places) and (place := self._places[count]()) is not None:
                self._compare(count, place.description, tensor)
                place.tensor = value
            count += 1
            if self._options.stops_early and count == len(self._places):
                raise _Stop
            return value

        assert self.arguments is not None, "set before the function ran"
        args = self.arguments.given(self.arguments.saved_tensors)  # type: ignore[attr-defined]
        with (
            contextlib.suppress(_Stop),
            self._options.state,
            enable_grad(),
            saved_tensors_hooks(pack, lambda tensor: tensor),
            self._options.contexts[1],
        ):
            self._function(*args, **self._kwargs)
        if count != len(self._places):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the "
                "original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self._places)}\n"
                f"Number of tensors saved during recomputation: {count}"
            )

    def _compare(self, place: int, before: tuple[object, ...], tensor: Tensor) -> None:
        if self._options.compares and before != _described(tensor):
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have "
                f"different metadata than during the forward pass.\ntensor at position {place}:\n"
                f"saved metadata: {before}\nrecomputed metadata: {_described(tensor)}"
            )


def _described(tensor: Tensor) -> tuple[object, ...]:
    return tuple(tensor.shape), tensor.dtype


class _Arguments(Function):
    """Saves a function's arguments on the tape, so that an outer checkpoint's placeholders replace
    them, too.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, *args: Argument) -> Tensor:  # noqa: ANN401
        places = [place for place, x in enumerate(args) if isinstance(x, Tensor)]
        recorded = [args[place].requires_grad for place in places]
        others = [None if isinstance(x, Tensor) else x for x in args]

        def given(saved: Sequence[Tensor]) -> list[Argument]:
            listed: list[Argument] = list(others)
            for place, needs, tensor in zip(places, recorded, saved, strict=True):
                listed[place] = tensor.detach().requires_grad_(needs)
            return listed

        ctx.given = given
        ctx.save_for_backward(*(args[place] for place in places))
        return anchor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Argument:  # noqa: ANN401
        raise AssertionError(f"nothing depends on it: {ctx}, {gradients}")


def _recorded(
    function: Callable[..., R],
    args: tuple[Argument, ...],
    kwargs: dict[str, Argument],
    options: _Options,
) -> R:
    if not _core.is_grad_enabled():
        with options.contexts[0]:
            return function(*args, **kwargs)
    run = _Run(function, kwargs, options)
    anchor = _core.call("full", size=(0,), value=0, dtype=_core.float32)
    run.arguments = _Arguments.apply(anchor.requires_grad_(), *args).grad_fn
    with saved_tensors_hooks(run.pack, run.unpack), options.contexts[0]:
        return function(*args, **kwargs)


# ---- a node whose backward runs a pass of its own ----


class _Reentrant(Function):
    """Runs a function unrecorded; its backward runs it again, recorded, and differentiates that."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        function: Callable[..., Argument],
        preserve_rng_state: bool,
        *args: Argument,
    ) -> Argument:
        ctx.function = function
        ctx.state = _State(preserves_rng=preserve_rng_state)
        ctx.others = [None if isinstance(x, Tensor) else x for x in args]
        ctx.places = [place for place, x in enumerate(args) if isinstance(x, Tensor)]
        ctx.recorded = [args[place].requires_grad for place in ctx.places]
        ctx.save_for_backward(*(args[place] for place in ctx.places))
        with no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        if _core.is_pass_for_inputs():
            raise InvalidUse(_NOT_FOR_GRAD)
        args = list(ctx.others)
        for place, needs, tensor in zip(ctx.places, ctx.recorded, ctx.saved_tensors, strict=True):
            args[place] = tensor.detach().requires_grad_(needs)
        with ctx.state, enable_grad():
            returned = ctx.function(*args)
        outputs = returned if isinstance(returned, tuple) else (returned,)
        pairs = [
            (output, gradient)
            for output, gradient in zip(outputs, gradients, strict=True)
            if isinstance(output, Tensor) and output.requires_grad
        ]
        if not pairs:
            raise InvalidUse(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        backward([output for output, _ in pairs], [gradient for _, gradient in pairs])
        results = [x.grad if isinstance(x, Tensor) else None for x in args]
        return (None, None, *results)


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
