"""Elementwise functions beyond the table, with PyTorch's names and defaults."""

import math
import sys
from typing import TypeAlias

from gt import _core
from gt._core import Tensor, call
from gt.composite.casts import TENSOR_CLASSES
from gt.composite.common import (
    Method,
    Number,
    broadcast_shapes,
    check_float,
    generic,
    not_a_tensor,
)
from gt.composite.factors import check_factors, check_whole
from gt.errors import (
    DtypeError,
    InvalidType,
    InvalidUse,
    NotSupported,
    ShapeError,
    UnsupportedDtype,
)
from gt.tensors.dtypes import category, common_type, result_type
from gt.tensors.kept import keeps

Operand: TypeAlias = Tensor | Number


HALF = (_core.float16, _core.bfloat16)


def scaled(x: Tensor, factor: Number) -> Tensor:
    """factor * x."""
    return x if factor == 1 else x * factor


def is_half(*operands: Tensor) -> bool:
    """True if all operands have one half-precision dtype; steps between are in float32 then."""
    dtype = operands[0].dtype
    return dtype in HALF and all(x.dtype == dtype for x in operands)


def together(*operands: Tensor) -> list[Tensor]:
    """The operands in their common dtype: a product in a smaller one might overflow."""
    if len({x.dtype for x in operands}) == 1:
        return list(operands)
    dtype = common_type(*operands)
    return [x if x.dtype == dtype else call("cast", x, dtype=dtype) for x in operands]


def factor_of(dtype: _core.dtype, value: Number) -> Number:
    """`value` as a factor for `dtype`: an integer for integer dtypes."""
    return int(value) if category(dtype) < category(_core.float32) else value


def wrapped(number: Number, dtype: _core.dtype) -> Number:
    """An integer wrapped around into the range of an integer `dtype`."""
    if not isinstance(number, int) or category(dtype) != category(_core.int64):
        return number
    bits = 8 * dtype.itemsize
    low = 0 if dtype == _core.uint8 else -(1 << (bits - 1))
    return (number - low) % (1 << bits) + low


def rsub(self: Tensor, other: Operand, *, alpha: Number = 1) -> Tensor:
    """other - alpha * self."""
    if not isinstance(self, Tensor):
        raise InvalidType("rsub() takes a Tensor first")
    if isinstance(other, Tensor):
        return other.sub(self, alpha=alpha)
    dtype = result_type(self, other)
    check_whole("alpha", alpha, dtype)
    is_cast = alpha != 1 and dtype != self.dtype
    return other - scaled(call("cast", self, dtype=dtype) if is_cast else self, alpha)


def div(self: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """self / other, exact or rounded ("trunc" or "floor"); rounded quotients of integers are
    integers.
    """
    if rounding_mode is None:  # unlike `2 / x`, which is a product with the reciprocal
        return call("div", self, other)
    if rounding_mode not in {"trunc", "floor"}:
        raise ShapeError(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            f"'{rounding_mode}'"
        )
    if not isinstance(other, Tensor):
        other = wrapped(other, self.dtype)
    return call("div_rounded", self, other, rounding_mode=rounding_mode)


def round_(self: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest number with `decimals` decimals, halves to even."""
    if decimals == 0:
        return call("round", self)
    if not (self.dtype.is_floating_point or self.dtype.is_complex):  # PyTorch refuses integers
        return generic("special_round", self, decimals=decimals)
    scale = math.inf if abs(decimals) > sys.float_info.max_10_exp else 10.0 ** abs(decimals)
    if decimals > 0:
        return call("round", self * scale) / scale
    return call("round", self / scale) * scale


def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """self + value * tensor1 * tensor2."""
    self, tensor1, tensor2 = together(self, tensor1, tensor2)
    if common_type(self, tensor1, tensor2) == _core.bool:  # PyTorch refuses bools
        return generic("addcmul", self, tensor1, tensor2, value=value)
    check_factors(value, operands=(self,), wide=True)
    value = factor_of(self.dtype, value)
    if 0 in self.shape:  # its gradient is a sum over nothing, which comes behind the factors
        tensor1 = tensor1.expand(broadcast_shapes(self.shape, tensor1.shape, tensor2.shape))
    if is_half(self, tensor1, tensor2):
        exact = addcmul(self.float(), tensor1.float(), tensor2.float(), value=value)
        return exact.to(self.dtype)
    return self + scaled(tensor1 * tensor2, value)


@keeps(self="tensor2", tensor1="tensor2", tensor2="tensor1 tensor2")
def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Number = 1) -> Tensor:
    """self + value * tensor1 / tensor2."""
    if not any(x.dtype.is_floating_point for x in (tensor1, tensor2)):
        raise InvalidUse(
            "Integer division with addcdiv is no longer supported, and in a future  release "
            "addcdiv will perform a true division of tensor1 and tensor2. The historic addcdiv "
            "behavior can be implemented as (input + value * torch.trunc(tensor1 / tensor2))"
            ".to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) for "
            "float inputs. The future addcdiv behavior is just the latter implementation: "
            "(input + value * tensor1 / tensor2), for all dtypes."
        )
    self, tensor1, tensor2 = together(self, tensor1, tensor2)
    check_factors(value, operands=(self,), wide=True)
    if is_half(self, tensor1, tensor2):
        exact = addcdiv(self.float(), tensor1.float(), tensor2.float(), value=value)
        return exact.to(self.dtype)
    return self + scaled(tensor1 / tensor2, value)


def clamp_min(self: Tensor, min: Operand) -> Tensor:
    """`self` raised to at least `min`."""
    if self.dtype.is_complex:  # PyTorch refuses complex numbers
        return generic("clamp_min", self, min)
    return call("clamp", self, min, None)


def clamp_max(self: Tensor, max: Operand) -> Tensor:
    """`self` lowered to at most `max`."""
    if self.dtype.is_complex:  # PyTorch refuses complex numbers
        return generic("clamp_max", self, max)
    return call("clamp", self, None, max)


def clip(self: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    """`self` limited to [min, max]."""
    return self.clamp(min, max)


def where_method(self: Tensor, condition: Tensor, other: Operand) -> Tensor:
    """`self` where `condition`, else `other`."""
    return call("where", condition, self, other)


def exp2(self: Tensor) -> Tensor:
    """2 to the power of `self`."""
    if not self.dtype.is_floating_point:
        return call("pow", 2.0, self)
    return call("ldexp", 1.0, self)  # its gradient reads only the result, as PyTorch's does


def frac(self: Tensor) -> Tensor:
    """The fractional part."""
    if not self.dtype.is_floating_point:  # PyTorch refuses integers
        return generic("frac", self)
    return self - self.trunc()


@keeps(self="self out")
def sgn(self: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return call("sign", self)


@keeps(self="self")
def logit(self: Tensor, eps: float | None = None) -> Tensor:
    """log(self / (1 - self)), limited to [eps, 1 - eps] first if `eps` is given."""
    check_float("logit", "eps", 1, eps)
    if is_half(self):  # 1 - self in half precision would lose values near 0
        return logit(self.float(), eps).to(self.dtype)
    x = self if self.dtype.is_floating_point else call("cast", self, dtype=_core.float32)
    if eps is None:  # NaN without a logarithm, also as gradient; -0.0 becomes 0.0
        x = x + call("where", (x < 0).logical_or(x > 1), math.nan, 0.0)
    else:  # the lower bound applies first, even if it is above the upper one
        # No clamp: the gradient also passes at a bound and for NaN.
        x = call("where", x < eps, eps, call("where", x > 1 - eps, 1 - eps, x)) + 0.0
    # A difference: the logarithm of a quotient would have the gradient NaN, not infinity, at 0 and
    # 1.
    return x.log() - (1 - x).log()


@keeps(self="self")
def logsigmoid(self: Tensor) -> Tensor:
    """log(sigmoid(self)), without overflow."""
    return -call("softplus", -self, beta=1.0, threshold=math.inf)


def softsign(self: Tensor) -> Tensor:
    """self / (1 + |self|)."""
    return self / (self.abs() + 1)


@keeps(self="self")
def hardtanh(self: Tensor, min_val: Number = -1.0, max_val: Number = 1.0) -> Tensor:
    """`self` limited to [min_val, max_val]."""
    return self.clamp(min_val, max_val)


@keeps(self="self")
def relu6(self: Tensor) -> Tensor:
    """`self` limited to [0, 6]."""
    return self.clamp(0, 6)


@keeps(self="self")
def nan_to_num(
    self: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN and infinities replaced by numbers; by default by 0 and the largest finite ones."""
    for place, (name, number) in enumerate(
        {"nan": nan, "posinf": posinf, "neginf": neginf}.items()
    ):
        check_float("nan_to_num", name, place + 1, number)
    if not self.dtype.is_floating_point:
        return self.clone()
    largest = LARGEST[self.dtype.itemsize if self.dtype != _core.bfloat16 else 0]
    high = largest if posinf is None else _or_infinite(posinf, largest)
    low = -largest if neginf is None else _or_infinite(neginf, largest)
    out = self.masked_fill(self.isnan(), _or_infinite(nan, largest))
    return out.masked_fill(self == math.inf, high).masked_fill(self == -math.inf, low)


def _or_infinite(number: float, largest: float) -> float:
    """The number; infinite if it exceeds the largest."""
    return math.copysign(math.inf, number) if abs(number) > largest else number


def isposinf(self: Tensor) -> Tensor:
    """True for plus infinity."""
    return self.eq(math.inf)


def isneginf(self: Tensor) -> Tensor:
    """True for minus infinity."""
    return self.eq(-math.inf)


def isclose(
    self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """True where |self - other| <= atol + rtol * |other|."""
    if not isinstance(other, Tensor):
        raise not_a_tensor("isclose", "other", 2, other)
    if self.dtype != other.dtype:
        have, want = (TENSOR_CLASSES[repr(x.dtype)].removesuffix("Tensor") for x in (self, other))
        raise DtypeError(f"{have} did not match {want}")
    for name, bound in (("rtol", rtol), ("atol", atol)):
        if not bound >= 0:
            raise ShapeError(f"{name} must be greater than or equal to zero, but got {bound}")
    close = self == other
    if self.dtype.is_floating_point and equal_nan:
        close = close.logical_or(self.isnan().logical_and(other.isnan()))
    if rtol == 0 and atol == 0:
        return close
    if category(other.dtype) < category(_core.float32):  # its difference could overflow
        other = call("cast", other, dtype=_core.get_default_dtype())
        self = call("cast", self, dtype=_core.int64) if self.dtype == _core.bool else self
    gap = (self - other).abs()
    near = (gap <= atol + (rtol * other).abs()).logical_and(gap.isfinite())
    return close.logical_or(near)


def combination(function: str, self: object, other: object) -> InvalidType:
    """PyTorch's error for two numbers in place of a number and a tensor."""
    kinds = f"{type(self).__name__}, {type(other).__name__}"
    return InvalidType(
        f"{function}() received an invalid combination of arguments - got ({kinds}), but "
        "expected one of:\n * (Tensor input, Tensor other)\n * (Tensor input, Number other)"
    )


def shifted(
    self: Operand, other: Operand, function: str, kernel: str
) -> tuple[Tensor, Tensor, _core.dtype]:
    """Both operands as int64, broadcast, and the dtype of the result."""
    if not isinstance(self, Tensor) and not isinstance(other, Tensor):
        raise combination(function, self, other)
    dtype = result_type(self, other)
    if category(dtype) != category(_core.int64):
        raise UnsupportedDtype(f"\"{kernel}\" not implemented for '{SCALAR_TYPES[repr(dtype)]}'")
    wide = [
        call("cast", x, dtype=_core.int64)
        if isinstance(x, Tensor)
        else call("full", size=(), value=wrapped(x, dtype), dtype=_core.int64)
        for x in (self, other)
    ]
    return wide[0], wide[1], dtype


def reflected_div(self: Tensor, other: Operand) -> Tensor:
    """other / self under PyTorch's older name: the product with the reciprocal, as PyTorch keeps
    it.
    """
    return call("reciprocal", self) * other


def bitwise_left_shift(self: Operand, other: Operand) -> Tensor:
    """self * 2**other, wrapped around; zero if `other` is not in the dtype's range of bits."""
    x, count, dtype = shifted(self, other, "bitwise_left_shift", "lshift_cpu")
    is_in_range = (count >= 0).logical_and(count < 8 * dtype.itemsize)
    return call("cast", (x * 2 ** count.clamp(0, 63)) * is_in_range, dtype=dtype)


def bitwise_right_shift(self: Operand, other: Operand) -> Tensor:
    """self / 2**other, rounded down; only the sign remains if `other` exceeds the dtype's bits."""
    x, count, dtype = shifted(self, other, "bitwise_right_shift", "rshift_cpu")
    is_in_range = (count >= 0).logical_and(count < 63)
    down = x.floor_divide(2 ** count.clamp(0, 62))
    return call(
        "cast",
        call("where", is_in_range, down, -call("cast", x < 0, dtype=_core.int64)),
        dtype=dtype,
    )


def reflected_left_shift(self: Tensor, other: Operand) -> Tensor:
    """other << self."""
    return bitwise_left_shift(other, self)


def reflected_right_shift(self: Tensor, other: Operand) -> Tensor:
    """other >> self."""
    return bitwise_right_shift(other, self)


SCALAR_TYPES = {
    "gt.bool": "Bool",
    "gt.float16": "Half",
    "gt.bfloat16": "BFloat16",
    "gt.float32": "Float",
    "gt.float64": "Double",
    "gt.complex64": "ComplexFloat",
    "gt.complex128": "ComplexDouble",
}
LARGEST = {
    0: 3.3895313892515355e38,  # bfloat16
    2: 65504.0,
    4: 3.4028234663852886e38,
    8: 1.7976931348623157e308,
}


def xlogy(input: Operand, other: Operand) -> Tensor:
    """input * log(other), and 0 where `input` is 0, unless `other` is NaN."""
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise combination("xlogy", input, other)
    if isinstance(input, int):  # an integer tensor's dtype may not hold the number
        input = float(input)
    if isinstance(other, int):
        other = float(other)
    return call("xlogy", input, other)


def copysign(self: Tensor, other: Operand) -> Tensor:
    """The magnitude of `self` with the sign of `other`."""
    if not isinstance(self, Tensor):
        raise combination("copysign", self, other)
    # A number contributes only its sign, since the tensor's dtype may not hold the number.
    sign = other if isinstance(other, Tensor) else math.copysign(1.0, other)
    return call("copysign", self, sign)


def polygamma(n: int, input: Tensor) -> Tensor:
    """The `n`-th derivative of digamma."""
    if type(n) is not int:
        raise InvalidType(
            f"polygamma(): argument 'n' (position 1) must be int, not {_core.class_name(n)}"
        )
    if not isinstance(input, Tensor):
        raise not_a_tensor("polygamma", "input", 2, input)
    return input.polygamma(n)


def power(input: Operand, exponent: Operand) -> Tensor:
    """`input` to the power of `exponent`."""
    if not isinstance(input, Tensor) and not isinstance(exponent, Tensor):
        raise combination("pow", input, exponent)
    return call("pow", input, exponent)


def positive(self: Tensor) -> Tensor:
    """`self`, as `+self` is.

    Raises:
        NotSupported: the tensor is of bools.
    """
    if self.dtype == _core.bool:
        raise NotSupported("The `+` operator, on a bool tensor is not supported.")
    return self


METHODS: dict[str, Method] = {
    "positive": positive,
    "bitwise_left_shift": bitwise_left_shift,
    "bitwise_right_shift": bitwise_right_shift,
    "__rdiv__": reflected_div,
    "__lshift__": bitwise_left_shift,
    "__rshift__": bitwise_right_shift,
    "__rlshift__": reflected_left_shift,
    "__rrshift__": reflected_right_shift,
    "subtract": Tensor.sub,
    "rsub": rsub,
    "multiply": Tensor.mul,
    "div": div,
    "divide": div,
    "true_divide": Tensor.div,
    "absolute": Tensor.abs,
    "negative": Tensor.neg,
    "sgn": sgn,
    "fix": Tensor.trunc,
    "arctan2": Tensor.atan2,
    "greater": Tensor.gt,
    "greater_equal": Tensor.ge,
    "less": Tensor.lt,
    "less_equal": Tensor.le,
    "not_equal": Tensor.ne,
    "round": round_,
    "addcmul": addcmul,
    "addcdiv": addcdiv,
    "clamp_min": clamp_min,
    "clamp_max": clamp_max,
    "clip": clip,
    "where": where_method,
    "arctan": Tensor.atan,
    "exp2": exp2,
    "frac": frac,
    "logit": logit,
    "nan_to_num": nan_to_num,
    "isposinf": isposinf,
    "isneginf": isneginf,
    "isclose": isclose,
    "copysign": copysign,
    "xlogy": xlogy,
}
