"""Signals: names for parts of a program, which control placement, pipelining and compilation.

A signal never changes a result, and may be removed again. Instructions carry the scope in which
they were made, and a trace shows it: `@name`. Each thread and each asynchronous task has its own. A
YAML file or `gt.register_config` gives the names a meaning (gt/config).
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from gt import _core
from gt._core import Tensor
from gt.config import scopes
from gt.errors import InvalidType, InvalidValue
from gt.sessions import compiled

__all__ = ["context", "enter", "exit", "tensor"]

NAME_BYTES_MAX = 4096  # limit for a text in an instruction

P = ParamSpec("P")
R = TypeVar("R")

# Open scopes of enter(), innermost last: name, id of the enclosing scope, and the region that it
# opened, if it is compiled.
_entered: ContextVar[tuple[tuple[str, int, compiled.Region | None], ...]] = ContextVar(
    "gt.signal.entered", default=()
)


class context:  # noqa: N801 - used like a function
    """Name the instructions that are made in a `with` block, or in each call of a function.

    Inside another scope, a name is a separate scope: it inherits settings that the configuration
    does not give it. A block that makes no instruction (`x = x`) is a boundary: the log has a line
    with its name there, and the next transfers to other workers are made for it.

    Args:
        name: name of the scope, as in the configuration.
        backward: scope of the block's gradients; by default the same, or the one in the
            configuration.

    Raises:
        ConfigError: the configuration of the scope does not fit the enclosing one.
    """

    __slots__ = ("_around", "_backward", "_name")

    def __init__(self, name: str, backward: str | None = None) -> None:
        _check(name, backward)
        self._name, self._backward = name, backward
        self._around: list[tuple[int, int, compiled.Region | None]] = []

    def __enter__(self) -> None:
        around = scopes.current.get()
        scopes.current.set(scopes.signal_in(around, self._name, self._backward))
        region = compiled.opened(self._name) if scopes.compiles() else None
        self._around.append((around, _core.signal_entered(), region))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        around, entered, region = self._around.pop()
        signal = scopes.current.get()
        scopes.current.set(around)
        if region is not None:
            region.end()
        if error is None:
            _core.signal_left(signal, entered)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """A function that runs each call in the scope."""
        name, backward = self._name, self._backward
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: P.args, **kwargs: P.kwargs) -> object:
                with context(name, backward):
                    return await function(*args, **kwargs)

            return awaited  # type: ignore[return-value] # R is the coroutine

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            with context(name, backward):
                return function(*args, **kwargs)

        return called


class inner:  # noqa: N801 - as context
    """The scope that `choose` derives from the enclosing one, for GT's own modules.

    Args:
        choose: function from the id of the enclosing scope (0: none) to that of the scope.
    """

    __slots__ = ("_around", "_choose")

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose, self._around = choose, 0

    def __enter__(self) -> None:
        self._around = scopes.current.get()
        scopes.current.set(self._choose(self._around))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        scopes.current.set(self._around)


def part(kind: str) -> inner:
    """Scope for a parameter stored in another order than [in, out] (scopes.Meaning.part)."""
    return inner(lambda around: scopes.signal_of_part(around, kind))


def enter(name: str, backward: str | None = None) -> None:
    """Open a scope that `exit(name)` closes, where a `with` block does not fit."""
    _check(name, backward)
    around = scopes.current.get()
    scopes.current.set(scopes.signal_in(around, name, backward))
    region = compiled.opened(name) if scopes.compiles() else None
    _entered.set((*_entered.get(), (name, around, region)))


def exit(name: str) -> None:
    """Close the scope that `enter(name)` opened.

    Raises:
        InvalidValue: another scope is the innermost one, or none is open.
    """
    open_scopes = _entered.get()
    if not open_scopes or open_scopes[-1][0] != name:
        innermost = f"{open_scopes[-1][0]!r} is the innermost" if open_scopes else "none is open"
        raise InvalidValue(f"signal.exit({name!r}): {innermost}")
    _entered.set(open_scopes[:-1])
    _, around, region = open_scopes[-1]
    scopes.current.set(around)
    if region is not None:
        region.end()


def tensor(x: Tensor, name: str) -> Tensor:
    """`x` under a name: a copy made by an instruction in the scope `name`."""
    if not isinstance(x, Tensor):
        raise InvalidType(f"signal.tensor: expected a Tensor, got {type(x).__name__}")
    with context(name):
        return _core.call("reshape", x, size=tuple(x.shape))


def _check(name: str, backward: str | None) -> None:
    for text in (name, backward):
        if text is not None and not isinstance(text, str):
            raise InvalidType(f"a signal's name is a string, not {type(text).__name__}")
        if text is not None and not 0 < len(text.encode()) <= NAME_BYTES_MAX:
            raise InvalidValue(f"a signal's name has 1 to {NAME_BYTES_MAX} bytes")


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__


if TYPE_CHECKING:
    from gt.signal import windows as windows


def __getattr__(name: str) -> object:
    """Loads `windows`, the only name of torch.signal, at its first use."""
    if name == "windows":
        return importlib.import_module("gt.signal.windows")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
