"""`gt.compile` and its switches: a function does not change, and runs eagerly.

The workers compile hot paths by themselves; so no number changes.
"""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

from collections.abc import Callable
from typing import TypeVar

from gt import config

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
    """Returns `model`, also as a decorator with arguments; reports it if GT_VERBOSE is set.

    Args:
        model: A function or a module.
        fullgraph: Accepted and ignored, as are all further arguments.
    """
    if model is None:
        return say_unchanged
    return say_unchanged(model)


def disable(fn: F | None = None, recursive: bool = True, **others: object) -> F | Callable[[F], F]:
    """Returns `fn`, also as a decorator with arguments: nothing is compiled."""
    return (lambda function: function) if fn is None else fn


def is_compiling() -> bool:
    """False."""
    return False


def reset() -> None:
    """Does nothing: no compiled code is kept."""


def say_unchanged(model: F) -> F:
    """Returns `model`, and reports under GT_VERBOSE that it is unchanged."""
    if config.is_verbose():
        name = getattr(model, "__name__", type(model).__name__)
        from gt.sessions import notices

        notices.say(f"{name} is not compiled: it runs eagerly as it is", notices.INFO)
    return model


def __getattr__(name: str) -> object:
    if name == "__path__":  # `from gt.compiler import` asks for it, when GT is imported
        raise AttributeError(name)
    from gt.compat.missing import attribute_error

    raise attribute_error("gt.compiler", name)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
