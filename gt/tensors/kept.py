"""Values that PyTorch saves for backward in an operator that GT composes of several; writes to them
are errors.

GT's values are never written, so gradients are right in any case. The rule only decides on errors:
a program that PyTorch refuses is refused. Rows of ops.toml have the column `keeps` for it.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from gt import _core
from gt._core import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def keeps(**kept: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Marks a function that stands for one operator of PyTorch, whose node is that of the last
    instruction.

    Args:
        kept: For each operand that may require a gradient, names of the operands and results
            ("out", "out1") that PyTorch saves if it does.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        names = tuple(inspect.signature(function).parameters)
        rules = [
            (names.index(name), tuple(_place(names, word) for word in words.split()))
            for name, words in kept.items()
        ]

        @functools.wraps(function)
        def operator(*args: P.args, **named: P.kwargs) -> R:
            result = function(*args, **named)
            if _core.is_grad_enabled():
                operands = args if not named else (*args, *map(named.get, names[len(args) :]))
                _keep(rules, operands, result)
            return result

        return operator

    return decorate


# Index of a value: among the operands from 0, among the results from -1 downwards.
Place = int


def _place(names: tuple[str, ...], word: str) -> Place:
    return names.index(word) if word in names else -1 - int(word.removeprefix("out") or 0)


def _keep(
    rules: list[tuple[Place, tuple[Place, ...]]], operands: tuple[object, ...], result: object
) -> None:
    results = (result,) if isinstance(result, Tensor) else tuple(_tensors(result))
    recorded = next((x for x in results if x.requires_grad), None)
    if recorded is None or _is_among(recorded, operands):
        return
    count = len(operands)
    needed = {
        place: None
        for operand, places in rules
        if operand < count and getattr(operands[operand], "requires_grad", False)
        for place in places
    }
    tensors: list[Tensor] = []
    for place in needed:
        values, at = (operands, place) if place >= 0 else (results, -1 - place)
        if at < len(values):
            tensors += _tensors(values[at])
    _core.keep(recorded, *tensors)


def _is_among(tensor: Tensor, values: Iterable[object]) -> bool:
    return any(
        value is tensor or (isinstance(value, list | tuple) and _is_among(tensor, value))
        for value in values
    )


def _tensors(value: object) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        return (value,)
    if isinstance(value, list | tuple):
        return [x for item in value for x in _tensors(item)]
    return ()
