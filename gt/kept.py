"""What PyTorch keeps of an operator that GT composes of several: backward passes mind writes to it.

GT's values are never written, so gradients are right whatever is kept. Only an error follows: a
program that PyTorch refuses is refused. Rows of ops.toml have the column `keeps` for it.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import ParamSpec, TypeVar

from gt import _core
from gt._core import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def keeps(**kept: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that stands for one operator of PyTorch's, the last instruction for its node.

    Args:
        kept: For each operand that may require a gradient, names of the operands and results
            ("out", "out1") that PyTorch keeps where it does.
    """
    words = {name: text.split() for name, text in kept.items()}

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        names = tuple(inspect.signature(function).parameters)

        @functools.wraps(function)
        def operator(*args: P.args, **named: P.kwargs) -> R:
            result = function(*args, **named)
            if _core.is_grad_enabled():
                _keep(words, dict(zip(names, args, strict=False)) | named, result)
            return result

        return operator

    return decorate


def _keep(words: Mapping[str, list[str]], operands: Mapping[str, object], result: object) -> None:
    results = list(_tensors(result))
    recorded = next((x for x in results if x.requires_grad), None)
    given = [x for value in operands.values() for x in _tensors(value)]
    if recorded is None or any(recorded is x for x in given):
        return
    named = {f"out{place or ''}": x for place, x in enumerate(results)}
    values: dict[str, object] = {**operands, **named}
    needed = [
        word
        for name, kept in words.items()
        if any(x.requires_grad for x in _tensors(operands.get(name)))
        for word in kept
    ]
    tensors = [x for word in dict.fromkeys(needed) for x in _tensors(values.get(word))]
    _core.keep(recorded, *tensors)


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
