"""Calls with factors by position and before the tensors, which PyTorch deprecates but accepts.

`x.addmm(2, 3, a, b)` is `x.addmm(a, b, beta=2, alpha=3)`, and `gt.addmm(2, x, 3, a, b)` is, too.
"""

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from gt._core import Tensor
from gt.errors import InvalidType

P = ParamSpec("P")
R = TypeVar("R")
Words = tuple[str, ...]

_PRODUCT = ("beta", "alpha")
_NUMBER = (int, float, complex)
# Names of the factors, and of the operands behind `self`.
FORMS: dict[str, tuple[Words, Words]] = {
    "add": (("alpha",), ("other",)),
    "sub": (("alpha",), ("other",)),
    "addcmul": (("value",), ("tensor1", "tensor2")),
    "addcdiv": (("value",), ("tensor1", "tensor2")),
    "addmm": (_PRODUCT, ("mat1", "mat2")),
    "addmv": (_PRODUCT, ("mat", "vec")),
    "addr": (_PRODUCT, ("vec1", "vec2")),
    "addbmm": (_PRODUCT, ("batch1", "batch2")),
    "baddbmm": (_PRODUCT, ("batch1", "batch2")),
}


def factors_first(name: str, function: Callable[P, R], stacklevel: int = 2) -> Callable[P, R]:
    """`function`, an operator of FORMS with its tensor first, that also accepts the older forms.

    Args:
        stacklevel: number of frames up to the user's line, for the warning.
    """
    operator = name.removesuffix("_")
    if operator not in FORMS:
        return function
    factors, operands = FORMS[operator]

    @functools.wraps(function)
    def called(*args: P.args, **named: P.kwargs) -> R:
        if len(args) + len(named) <= 1 + len(operands) or not named.keys().isdisjoint(factors):
            return function(*args, **named)
        numbers, others = _parted(args)
        if not numbers or len(numbers) > len(factors) or len(others) + len(named) <= len(operands):
            return function(*args, **named)
        warnings.warn(_warning(name, factors, operands), stacklevel=stacklevel)
        return function(*others, **named, **dict(zip(factors, numbers, strict=False)))  # type: ignore[arg-type]

    return called


def as_function(name: str, method: Callable[P, R]) -> Callable[P, R]:
    """The method as a function: for a product, the first factor comes before the tensor.

    So `gt.addmm(x, 3, a, b)` is an error, while `x.addmm(3, a, b)` is a call with one factor.
    """
    if name not in FORMS or FORMS[name][0] is not _PRODUCT:
        return method

    @functools.wraps(method)
    def called(*args: P.args, **named: P.kwargs) -> R:
        if len(args) > 1 and isinstance(args[0], Tensor) and isinstance(args[1], _NUMBER):
            types = ", ".join(type(x).__name__ for x in args)
            tensors = ", ".join(f"Tensor {operand}" for operand in ("input", *FORMS[name][1]))
            raise InvalidType(
                f"{name}() received an invalid combination of arguments - got ({types}), but "
                f"expected one of:\n * ({tensors}, *, Number beta = 1, Number alpha = 1)"
            )
        return method(*args, **named)

    return called


def _parted(args: tuple[object, ...]) -> tuple[list[object], list[object]]:
    """Numbers and tensors of an older form, in which a number comes before and after the first
    tensor.
    """
    numbers: list[object] = [x for x in args[:3] if isinstance(x, _NUMBER)]
    others = [x for x in args if not any(x is number for number in numbers)]
    return numbers, others


def _warning(name: str, factors: Words, operands: Words) -> str:
    tensors = ", ".join(f"Tensor {operand}" for operand in operands)
    first = ", ".join(f"Number {factor}" for factor in factors)
    named = ", ".join(f"Number {factor} = 1" for factor in factors)
    return (
        f"This overload of {name} is deprecated:\n\t{name}({first}, {tensors})\nConsider using one "
        f"of the following signatures instead:\n\t{name}({tensors}, *, {named})"
    )
