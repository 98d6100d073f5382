"""Numbers as factors of an operator: checks that the dtype in which it computes can hold them."""

from __future__ import annotations

import math

import numpy as np

from gt import _core
from gt._core import Tensor
from gt.composite.common import Number
from gt.errors import InvalidUse, ShapeError
from gt.tensors.dtypes import category, common_type

# C++'s names of dtypes, which PyTorch's errors use.
C_TYPES = {
    _core.bool: "bool", _core.uint8: "uint8_t", _core.int8: "int8_t", _core.int16: "int16_t",
    _core.int32: "int", _core.int64: "int64_t", _core.float16: "c10::Half",
    _core.bfloat16: "c10::BFloat16", _core.float32: "float", _core.float64: "double",
}  # fmt: skip
_LARGEST = {
    _core.uint8: 2**8 - 1, _core.int8: 2**7 - 1, _core.int16: 2**15 - 1, _core.int32: 2**31 - 1,
    _core.int64: 2**63 - 1, _core.float16: 65504.0, _core.bfloat16: 3.3895313892515355e38,
    _core.float32: float(np.finfo(np.float32).max),
}  # fmt: skip


def fits(value: Number | complex, dtype: _core.dtype) -> bool:
    """True if the dtype can hold the number; integer dtypes drop a fraction, and negative numbers
    wrap.
    """
    if dtype.is_complex:
        return True
    if isinstance(value, complex):
        if value.imag:
            return False
        value = value.real
    if dtype not in _LARGEST:  # bool and float64 hold any number
        return True
    largest = _LARGEST[dtype]
    if dtype.is_floating_point:
        return not math.isfinite(value) or abs(value) <= largest
    lowest = -largest if dtype == _core.uint8 else -largest - 1
    return not math.isnan(value) and lowest <= value <= largest


def check_fits(value: Number | complex, dtype: _core.dtype) -> None:
    """Raise PyTorch's error for a number that the dtype cannot hold.

    Raises:
        ShapeError: The dtype cannot hold it.
    """
    if not fits(value, dtype):
        kind = C_TYPES[dtype]
        raise ShapeError(f"value cannot be converted to type {kind} without overflow")


def check_factors(*values: Number | complex, operands: tuple[Tensor, ...], wide: bool) -> None:
    """Raise PyTorch's error for factors that the common dtype of the operands cannot hold.

    Args:
        values: The factors.
        operands: Tensors that determine the common dtype.
        wide: True if half dtypes are computed in float32, as in most of PyTorch's kernels.
    """
    for value in values:
        if type(value) is int and -100 < value < 100:  # fits every dtype
            continue
        dtype = common_type(*operands)
        is_half = dtype in (_core.float16, _core.bfloat16)
        check_fits(value, _core.float32 if wide and is_half else dtype)


def check_whole(name: str, value: Number | complex, dtype: _core.dtype) -> None:
    """Raise PyTorch's error for a fractional factor of integers.

    Raises:
        InvalidUse: The factor is a float or a complex number.
    """
    if isinstance(value, float | complex) and category(dtype) < category(_core.float32):
        raise InvalidUse(
            f"For integral input tensors, argument {name} must not be a floating point number."
        )
