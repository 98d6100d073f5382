"""Operators whose GT functions the fast path may call, collected until it is ready for them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

Function = Callable[..., object]


class Use(enum.IntEnum):
    """Uses of a GT function by an operator, with the numbers of operators.cpp."""

    FUNCTION = 0
    VIEW = 1
    WRITE = 2


class Offer(NamedTuple):
    """An operator, and the GT function that takes its arguments and computes its results."""

    operator: str
    overload: str
    use: Use
    function: Function


Taker = Callable[[Offer], bool]


class _State:
    """Taker of offers, or the offers that wait for one."""

    def __init__(self) -> None:
        self.taker: Taker | None = None
        self.waiting: list[Offer] = []
        self.last_taken: object = None


_state = _State()


def offer(operator: Any, use: Use, function: Function) -> None:  # noqa: ANN401 - an overload
    """Lets the fast path run an operator by a function, from now on or from its start on."""
    schema = operator._schema  # noqa: SLF001 - PyTorch's only way to ask
    entry = Offer(schema.name, schema.overload_name, use, function)
    if _state.taker is None:
        _state.waiting.append(entry)
    elif _state.taker(entry):
        _state.last_taken = operator


def was_taken(operator: object) -> bool:
    """True if this operator was offered last, and the fast path runs it from now on."""
    return _state.last_taken is operator


def take(taker: Taker) -> None:
    """Passes all offers to `taker`, those that wait and those to come.

    Args:
        taker: returns True if the fast path runs the operator.
    """
    _state.taker = taker
    while _state.waiting:
        taker(_state.waiting.pop())
