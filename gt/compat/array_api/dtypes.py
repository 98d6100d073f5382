"""Dtypes by the standard: kinds of them, casts and promotion."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import gt
from gt._core import Tensor, dtype
from gt.errors import InvalidType, InvalidValue

Real = bool | int | float
Number = Real | complex
KINDS = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8",),
    "integral": ("int8", "int16", "int32", "int64", "uint8"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
    "numeric": (
        "int8", "int16", "int32", "int64", "uint8", "float32", "float64", "complex64", "complex128",
    ),
}  # fmt: skip


def of_python(*numbers: Number) -> dtype:
    """The default dtype of Python's numbers: the widest kind among them."""
    if all(isinstance(number, bool) for number in numbers):
        return gt.bool
    if all(isinstance(number, int) for number in numbers):
        return gt.int64
    return gt.get_default_dtype()


def astype(x: Tensor, dtype: dtype, /, *, copy: bool = True, device: object = None) -> Tensor:
    """`x` in `dtype`; if it has that dtype already a copy, or with `copy=False` itself."""
    out = x.to(device, dtype) if device is not None else x.to(dtype)
    return out.clone() if copy and out is x else out


def can_cast(from_: dtype | Tensor, to: dtype, /) -> bool:
    """True if promotion of `from_` with `to` gives `to`, so that no value is lost."""
    own = from_.dtype if isinstance(from_, Tensor) else from_
    return bool(gt.promote_types(own, to) == to)


def isdtype(dtype: dtype, kind: dtype | str | tuple[dtype | str, ...]) -> bool:
    """True if `dtype` is `kind`, is of a kind by its name, or is of one of several kinds.

    Raises:
        ValueError: a name that no kind has.
        TypeError: `kind` is neither a dtype nor a name nor a tuple.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if not isinstance(kind, str):
        if not isinstance(kind, gt.dtype):
            raise InvalidType(f"isdtype(): kind must be a dtype, a str or a tuple, not {kind!r}")
        return bool(dtype == kind)
    if kind not in KINDS:
        raise InvalidValue(f"isdtype(): unknown kind {kind!r}: one of {', '.join(KINDS)}")
    return repr(dtype).removeprefix("gt.") in KINDS[kind]


def result_type(*arrays_and_dtypes: Tensor | dtype | Number) -> dtype:
    """The dtype to which the operands are promoted; Python numbers weigh less than arrays."""
    dtypes = [
        x.dtype if isinstance(x, Tensor) else x
        for x in arrays_and_dtypes
        if not isinstance(x, (bool, int, float, complex))
    ]
    numbers: list[Any] = [
        x for x in arrays_and_dtypes if isinstance(x, (bool, int, float, complex))
    ]
    if not dtypes:
        raise InvalidValue("result_type(): at least one array or dtype is needed")
    promoted = reduce(gt.promote_types, dtypes)
    for number in numbers:
        promoted = gt.result_type(gt.empty(1, dtype=promoted), number)
    return promoted


def axes(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The dimensions that an `axis` names: all where it is None."""
    if axis is None:
        return tuple(range(rank))
    return (axis,) if isinstance(axis, int) else tuple(axis)
