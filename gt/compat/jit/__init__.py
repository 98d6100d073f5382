"""`gt.jit`: functions and modules remain Python, with equal results; nothing can be saved."""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from gt import config
from gt.compat import misses
from gt.errors import NotSupported
from gt.nn.module import Module as ScriptModule

__all__ = [
    "ScriptModule",
    "annotate",
    "export",
    "freeze",
    "ignore",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "optimize_for_inference",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "trace",
    "trace_module",
    "unused",
]

F = TypeVar("F", bound=Callable[..., Any])
isinstance = isinstance  # noqa: PLW0127 - PyTorch's name of it


def _say_unchanged(model: F) -> F:
    """Returns `model`, and reports under GT_VERBOSE that it is unchanged."""
    if config.is_verbose():
        from gt.sessions import notices

        name = getattr(model, "__name__", type(model).__name__)
        notices.say(f"{name} is not compiled: it runs eagerly as it is", notices.INFO)
    return model


def script(obj: F, *args: object, **options: object) -> F:
    """Returns `obj`, which runs as Python; prints a message if GT_VERBOSE is set."""
    return _say_unchanged(obj)


def trace(func: F, example_inputs: object = None, *args: object, **options: object) -> F:
    """Returns `func`: unlike a trace it keeps its branches, so it is right for all inputs."""
    return _say_unchanged(func)


def trace_module(mod: F, inputs: object, *args: object, **options: object) -> F:
    """Returns `mod`, like `trace`."""
    return _say_unchanged(mod)


def script_if_tracing(fn: F) -> F:
    """Returns `fn`."""
    return fn


script_method = export = unused = script_if_tracing


def ignore(drop: bool | F = False, **options: object) -> Any:  # noqa: ANN401 - with or without call
    """A decorator that changes nothing."""
    return drop if callable(drop) else script_if_tracing


def freeze(mod: F, *args: object, **options: object) -> F:
    """Returns `mod`."""
    return mod


optimize_for_inference = freeze


def annotate(the_type: object, the_value: F) -> F:
    """Returns `the_value`."""
    return the_value


def is_scripting() -> bool:
    """False: there are no scripts in GT."""
    return False


def is_tracing() -> bool:
    """False: there are no traces in GT."""
    return False


def save(m: object, f: object, _extra_files: object = None) -> NoReturn:
    """Refused: a file holds no code.

    Raises:
        NotSupported: always.
    """
    raise NotSupported(
        "jit.save: GT's files hold no code; gt.save(module.state_dict(), file) keeps the values"
    )


def load(f: object, map_location: object = None, *args: object, **options: object) -> NoReturn:
    """Refused: GT runs no TorchScript.

    Raises:
        NotSupported: always.
    """
    raise NotSupported(
        "jit.load: GT runs no TorchScript; make the module in Python and load its state_dict"
    )


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
