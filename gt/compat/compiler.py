"""`gt.compile` and its switches (gt/sessions/compiled.py has what it does)."""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

from collections.abc import Callable
from typing import TypeVar

from gt.sessions.compiled import CompiledFunction

__all__ = ["compile", "disable", "is_compiling", "reset"]

F = TypeVar("F", bound=Callable[..., object])


def compile(
    model: F | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: object = "inductor",
    mode: str | None = None,
    options: object = None,
    disable: bool = False,
    **others: object,
) -> F | Callable[[F], F]:
    """A function, or a module, whose instructions a worker compiles with PyTorch's inductor.

    Python runs the function at every call. A program of instructions that comes again is compiled
    in the background; from then on it is one instruction. The compiled code sums in another order,
    so results differ from the plain ones in their last bits. `gt.debug.explain_compile` says what
    became of a function. Without PyTorch on the worker, or over several workers, everything runs as
    always.

    Args:
        model: A function, or a module, which is changed and returned. Without it, a decorator.
        fullgraph: Accepted and ignored, as are `dynamic`, `mode` and `options`.
        backend: "inductor"; with "eager" and "aot_eager" nothing is compiled.
        disable: True leaves the function as it is.
    """
    if model is None:
        return lambda function: compile(function, backend=backend, disable=disable)  # type: ignore[return-value] # F, with a function
    if disable or backend in ("eager", "aot_eager"):
        return model
    from gt.nn.module import Module

    if isinstance(model, Module):
        model.compile()
        return model
    return CompiledFunction(model)  # type: ignore[return-value] # called as the function is


def disable(fn: F | None = None, recursive: bool = True, **others: object) -> F | Callable[[F], F]:
    """Returns `fn`, also as a decorator with arguments: nothing is compiled."""
    return (lambda function: function) if fn is None else fn


def is_compiling() -> bool:
    """False."""
    return False


def reset() -> None:
    """Does nothing: no compiled code is kept."""


def __getattr__(name: str) -> object:
    if name == "__path__":  # `from gt.compiler import` asks for it, when GT is imported
        raise AttributeError(name)
    from gt.compat.missing import attribute_error

    raise attribute_error("gt.compiler", name)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
