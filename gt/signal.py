"""Signals: names for parts of a program, on which placement, pipelining and compilation hang.

A signal never changes a result; it may be taken away again. Instructions carry the scope that they
were made in, and a trace shows it: `@name`. Each thread and each asynchronous task has its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from gt import _core
from gt._core import Tensor
from gt.errors import InvalidType, InvalidValue

__all__ = ["context", "enter", "exit", "tensor"]

NAME_BYTES_MAX = 4096  # what a text in an instruction may have

# The id of the innermost scope, 0 outside of all: gt._core asks for it.
_current: ContextVar[int] = ContextVar("gt.signal", default=0)
# The open scopes of enter(), innermost last: name, and the id around it.
_entered: ContextVar[tuple[tuple[str, int], ...]] = ContextVar("gt.signal.entered", default=())


@contextmanager
def context(name: str, backward: str | None = None) -> Iterator[None]:
    """Name the instructions that are made in a `with` block.

    Args:
        name: of the scope, as in the configuration.
        backward: the scope of the block's gradients, if not the same.
    """
    around = _current.get()
    _current.set(_id(name, backward))
    try:
        yield
    finally:
        _current.set(around)


def enter(name: str, backward: str | None = None) -> None:
    """Open a scope that `exit(name)` closes, where a `with` block does not fit."""
    _entered.set((*_entered.get(), (name, _current.get())))
    _current.set(_id(name, backward))


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
    _current.set(open_scopes[-1][1])


def tensor(x: Tensor, name: str) -> Tensor:
    """`x`, named: the same elements by an instruction of its own in the scope `name`."""
    if not isinstance(x, Tensor):
        raise InvalidType(f"signal.tensor: expected a Tensor, got {type(x).__name__}")
    with context(name):
        return _core.call("reshape", x, size=tuple(x.shape))


def _id(name: str, backward: str | None) -> int:
    for given in (name, backward):
        if given is not None and not isinstance(given, str):
            raise InvalidType(f"a signal's name is a string, not {type(given).__name__}")
        if given is not None and not 0 < len(given.encode()) <= NAME_BYTES_MAX:
            raise InvalidValue(f"a signal's name has 1 to {NAME_BYTES_MAX} bytes")
    _core.set_signal_source(_current.get)
    return _core.signal_id(name, None if backward is None else _core.signal_id(backward))
