"""Arithmetic functions with a number in place of the tensor, as in PyTorch: gt.sub(1, x).

A number has no such methods. PyTorch decides which functions allow it (torch.fmod does not).
"""

import operator
from collections.abc import Callable

from gt import _core
from gt._core import Tensor, call
from gt.composite import pointwise
from gt.composite.common import Number

Function = Callable[..., object]


def _of_operator(name: str, combine: Callable[[Number, Tensor], Tensor]) -> Function:
    def of_number(input: Number, other: Tensor | Number) -> Tensor:
        if not isinstance(other, Tensor):
            raise pointwise.combination(name, input, other)
        return combine(input, other)

    return of_number


def _of_numbers_too(method: Function, combine: Function) -> Function:
    """`combine` for a number and a tensor; `method`, on a tensor of the first, for two numbers."""

    def of_number(input: Number, other: Tensor | Number, **named: object) -> object:
        if isinstance(other, Tensor):
            return combine(input, other, **named)
        return method(_scalar(input), other, **named)

    return of_number


def _scalar(value: Number) -> Tensor:
    dtype = {bool: _core.bool, int: _core.int64, complex: _core.complex64}.get(type(value))
    return call("full", size=(), value=value, dtype=dtype or _core.get_default_dtype())


def _add(input: Number, other: Tensor, *, alpha: Number = 1) -> Tensor:
    return input + other if alpha == 1 else pointwise.rsub(other, input, alpha=-alpha)


def _sub(input: Number, other: Tensor, *, alpha: Number = 1) -> Tensor:
    return pointwise.rsub(other, input, alpha=alpha)


_MUL = _of_numbers_too(Tensor.mul, operator.mul)
_ADD = _of_numbers_too(Tensor.add, _add)
_SUB = _of_numbers_too(Tensor.sub, _sub)
_DIV = _of_numbers_too(pointwise.div, pointwise.div)

NUMBERS_FIRST: dict[str, Function] = {
    "add": _ADD,
    "sub": _SUB,
    "subtract": _SUB,
    "mul": _MUL,
    "multiply": _MUL,
    "div": _DIV,
    "divide": _DIV,
    "true_divide": _of_numbers_too(Tensor.div, pointwise.div),
    "floor_divide": _of_numbers_too(Tensor.floor_divide, operator.floordiv),
    "remainder": _of_operator("remainder", operator.mod),
    "bitwise_and": _of_operator("bitwise_and", operator.and_),
    "bitwise_or": _of_operator("bitwise_or", operator.or_),
    "bitwise_xor": _of_operator("bitwise_xor", operator.xor),
}
