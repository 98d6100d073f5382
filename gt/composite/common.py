"""Code that the files of this package share: numpy's argument names, dimension checks, results."""

import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import ParamSpec, SupportsFloat, TypeAlias, TypeVar

from gt import _core
from gt._core import Tensor, call
from gt.errors import IndexOutOfRange, InvalidType, InvalidValue, ShapeError
from gt.tensors.size import Size

Shape: TypeAlias = tuple[int, ...]
Dims: TypeAlias = int | Sequence[int] | None
Number: TypeAlias = bool | int | float
Method: TypeAlias = Callable[..., object]
P = ParamSpec("P")
R = TypeVar("R")

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def numpy_names(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which also accepts `axis` for `dim` and `keepdims` for `keepdim`.

    Methods of the table's rows accept both already.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code else ()
    others = {other: name for other, name in NUMPY_NAMES.items() if name in own}
    if not others:
        return function

    @functools.wraps(function)
    def renamed(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs:
            for name in others.keys() & kwargs.keys():
                kwargs[others[name]] = kwargs.pop(name)
        return function(*args, **kwargs)

    signature = inspect.signature(function)
    added = [inspect.Parameter(name, KEYWORD_ONLY, default=None) for name in others]
    listed = [*signature.parameters.values(), *added]
    renamed.__signature__ = signature.replace(parameters=listed)  # type: ignore[attr-defined]
    return renamed


# Compositions that hold for real numbers only; for complex ones PyTorch's operator runs.
REAL_ONLY = frozenset({
    "addbmm", "addcdiv", "addcmul", "addmm", "addmv", "addr", "baddbmm", "bitwise_left_shift",
    "bitwise_right_shift", "cumprod", "exp2", "frac", "isneginf", "isposinf", "kthvalue",
    "logit", "median", "nan_to_num", "sgn", "std", "std_mean", "var", "var_mean", "vdot",
})  # fmt: skip


def of_complex(name: str, function: Callable[P, R]) -> Callable[P, R]:
    """`function`, replaced by PyTorch's operator `name` if a tensor is complex."""
    if name not in REAL_ONLY:
        return function

    @functools.wraps(function)
    def called(*args: P.args, **named: P.kwargs) -> R:
        for value in (*args, *named.values()) if named else args:
            if isinstance(value, Tensor) and value.dtype.is_complex:
                return generic(name, *args, **named)  # type: ignore[return-value]
        return function(*args, **named)

    return called


def generic(name: str, *args: object, **named: object) -> Tensor:
    """Calls PyTorch's operator `name`, by the generic row."""
    from gt.tensors.aten.call import call as by_schema  # loads when it is needed

    result: Tensor = by_schema(name, args, named)
    return result


def wrap(dim: int, ndim: int) -> int:
    """`dim` counted from the front.

    Raises:
        IndexOutOfRange: There is no such dimension.
        InvalidType: A bool, or another value that is no integer.
        InvalidValue: An integer that exceeds 64 bits.
    """
    if type(dim) is not int:
        dim = integer(dim, "dim")
    bound = max(ndim, 1)
    if not -bound <= dim < bound:
        check_64_bits(dim)
        raise IndexOutOfRange(
            f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], "
            f"but got {dim})"
        )
    return dim % bound


def check_64_bits(number: int) -> None:
    """Raise PyTorch's error for an integer that exceeds 64 bits."""
    if not -(2**63) <= number < 2**63:
        raise InvalidValue("Overflow when unpacking long long")


def integer(number: object, name: str) -> int:
    """An integer for the argument `name`."""
    one = whole(number)
    if one is None:
        raise InvalidType(f"argument '{name}' must be int, not {type(number).__name__}")
    check_64_bits(one)
    return one


def whole(number: object) -> int | None:
    """A value as a Python integer: numpy's, or a tensor of one, which is read; None for others.

    Bools give None: PyTorch takes no bool for an integer.
    """
    if isinstance(number, bool):
        return None
    try:
        return operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        return None


_INT = {int}


def sizes(size: Sequence[int | Sequence[int]], function: str = "size") -> Shape:
    """The shape of `f(2, 3)` or of `f((2, 3))`.

    Args:
        function: name of the called function, for an error's text.
    """
    for plain in (size, size[0] if len(size) == 1 else None):
        if isinstance(plain, tuple | list) and {*map(type, plain)} <= _INT:
            return tuple(plain)
    parts: Sequence[object] = size
    only: object = size[0] if len(size) == 1 else 1
    if isinstance(only, bool) or whole(only) is None:
        if isinstance(only, str) or not isinstance(only, Iterable):
            raise InvalidType(
                f"{function}(): argument 'size' (position 1) must be tuple of ints, not "
                f"{type(only).__name__}"
            )
        parts = tuple(only)
    numbers = [None if isinstance(n, bool) else whole(n) for n in parts]
    for place, (number, n) in enumerate(zip(numbers, parts, strict=True), 1):
        if number is None:
            raise InvalidType(
                f"{function}(): argument 'size' failed to unpack the object at pos {place} with "
                f'error "type must be tuple of ints,but got {type(n).__name__}"'
            )
    return tuple(number for number in numbers if number is not None)


def listed(numbers: int | Sequence[int]) -> Sequence[int]:
    """A list of one integer, or of several."""
    one = whole(numbers)
    if one is not None:
        check_64_bits(one)
        return (one,)
    if not isinstance(numbers, Iterable):
        raise InvalidType(f"argument must be tuple of ints, not {type(numbers).__name__}")
    return numbers


def dims(dim: Dims, ndim: int) -> Shape:
    """The given dimensions counted from the front; all dimensions if none is given."""
    if dim is None:
        return tuple(range(ndim))
    return tuple(wrap(d, ndim) for d in listed(dim))


def slice_dim(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements from `start` along `dim`."""
    return call("slice", x, dim=dim, start=start, end=start + length, step=1)


def not_a_tensor(function: str, argument: str, position: int, value: object) -> InvalidType:
    """PyTorch's error for a value in the place of a tensor."""
    return InvalidType(
        f"{function}(): argument '{argument}' (position {position}) must be Tensor, not "
        f"{_core.class_name(value)}"
    )


def check_float(function: str, argument: str, position: int, value: object) -> None:
    """Raise PyTorch's error for a value in the place of a number; a tensor of one element is a
    number.
    """
    is_number = value.ndim == 0 if isinstance(value, Tensor) else isinstance(value, SupportsFloat)
    if value is not None and not is_number:
        raise InvalidType(
            f"{function}(): argument '{argument}' (position {position}) must be float, not "
            f"{_core.class_name(value)}"
        )


def not_in_list(value: object, place: int, argument: int) -> InvalidType:
    """PyTorch's error for an element of a list of tensors that is no tensor."""
    return InvalidType(
        f"expected Tensor as element {place} in argument {argument}, but got "
        f"{_core.class_name(value)}"
    )


def broadcast_shapes(*shapes: Shape | int) -> Shape:
    """The shape that all of `shapes` broadcast to."""
    rows = [tuple(listed(shape)) for shape in shapes]
    out = [1] * max((len(row) for row in rows), default=0)
    for row in rows:
        for place, n in enumerate(reversed(row), 1):
            if n not in {1, out[-place]}:
                if n < 0:
                    raise InvalidValue("Attempting to broadcast a dimension with negative length!")
                if out[-place] != 1:
                    raise ShapeError(
                        "Shape mismatch: objects cannot be broadcast to a single shape: "
                        + ", ".join(str(list(row)) for row in rows)
                    )
                out[-place] = n
    return Size(out)
