"""Elementwise rows in numpy: one function of wide arrays each, and the row's rule for the dtype."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gt.worker.backend import Kernel
from gt.worker.reference import special
from gt.worker.reference.values import (
    Array,
    Operand,
    cast,
    dtype_name,
    is_float,
    narrowed,
    promotion,
    wide_name,
    widened,
)

Floats = npt.NDArray[np.floating]
Function = Callable[..., npt.ArrayLike]

_SQRT_HALF = math.sqrt(0.5)
_GELU_SCALE = math.sqrt(2 / math.pi)
_GELU_CUBIC = 0.044715


def _kernel(function: Function, rule: str, operands: int) -> Kernel:
    """A kernel that promotes its operands, computes wide, and rounds to the dtype of the rule."""

    def kernel(*arguments: Operand) -> Array:
        values, attrs = arguments[:operands], arguments[operands:]
        name = dtype_name(values[0]) if rule == "first" else promotion(values)
        if rule == "float" and not is_float(name):
            name = "float32"
        wide = [None if value is None else _wide(value, wide_name(name)) for value in values]
        return narrowed(function(*wide, *attrs), "bool" if rule == "bool" else name)

    return kernel


def _wide(value: Operand, name: str) -> Array:
    array = widened(value) if isinstance(value, np.ndarray) else np.asarray(value)
    return array.astype(name)


def _sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


def _erf(x: Floats) -> Floats:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x), dtype=x.dtype)


def _gelu(x: Floats, approximate: str) -> Floats:
    if approximate == "tanh":
        return x / 2 * (1 + np.tanh(_GELU_SCALE * (x + _GELU_CUBIC * x**3)))
    return x / 2 * (1 + _erf(x * _SQRT_HALF))


def _gelu_backward(grad: Floats, x: Floats, approximate: str) -> Floats:
    if approximate == "tanh":
        inner = np.tanh(_GELU_SCALE * (x + _GELU_CUBIC * x**3))
        slope = _GELU_SCALE * (1 + 3 * _GELU_CUBIC * x**2)
        return grad * ((1 + inner) / 2 + x / 2 * (1 - inner**2) * slope)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return grad * ((1 + _erf(x * _SQRT_HALF)) / 2 + x * density)


def _silu_backward(grad: Floats, x: Floats) -> Floats:
    return grad * _sigmoid(x) * (1 + x * (1 - _sigmoid(x)))


def _softplus(x: Floats, beta: float, threshold: float) -> Floats:
    return np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta)


def _softplus_backward(grad: Floats, x: Floats, beta: float, threshold: float) -> Floats:
    return np.where(x * beta > threshold, grad, grad * _sigmoid(x * beta))


def _elu(x: Floats, alpha: float) -> Floats:
    return np.where(x > 0, x, alpha * np.expm1(x))


def _elu_backward(grad: Floats, x: Floats, alpha: float) -> Floats:
    return np.where(x > 0, grad, grad * alpha * np.exp(x))


def _binary_cross_entropy(x: Floats, target: Floats) -> Floats:
    if not ((x >= 0) & (x <= 1)).all():
        raise RuntimeError("all elements of input should be between 0 and 1")
    with np.errstate(divide="ignore"):
        log, log_of_rest = np.maximum(np.log(x), -100.0), np.maximum(np.log1p(-x), -100.0)
    return (target - 1) * log_of_rest - target * log


def _clamp(x: Array, low: Array | None, high: Array | None) -> Array:
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _where(condition: Operand, self: Operand, other: Operand) -> Array:
    name = promotion((self, other))
    wide = wide_name(name)
    return narrowed(np.where(cast(condition, "bool"), _wide(self, wide), _wide(other, wide)), name)


def _masked_fill(self: Operand, mask: Operand, value: Operand) -> Array:
    name = dtype_name(self)
    wide = wide_name(name)
    return narrowed(np.where(cast(mask, "bool"), _wide(value, wide), _wide(self, wide)), name)


def _logical(function: Function) -> Kernel:
    def kernel(*operands: Operand) -> Array:
        return narrowed(function(*(cast(operand, "bool") for operand in operands)), "bool")

    return kernel


def _same_or(function: Function) -> Function:
    """A function that leaves integers unchanged, for rounding."""
    return lambda x: function(x) if is_float(x.dtype.name) else x


def _power(x: Array, y: Array) -> npt.ArrayLike:
    if is_float(x.dtype.name):
        return np.power(x, y)
    # numpy refuses negative exponents of integers; PyTorch gives 0, except for bases 1 and -1.
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0))
    return np.where(y < 0, inverse, np.power(x, np.maximum(y, 0)))


def _xlogy(x: Floats, y: Floats) -> npt.ArrayLike:
    return np.where((x == 0) & ~np.isnan(y), 0, x * np.log(y))


def _ldexp(self: Operand, other: Operand) -> Array:
    name, power_name = promotion((self, other)), dtype_name(other)
    name = name if is_float(name) else "float32"
    powers = np.exp2(_wide(other, "float64"))
    if is_float(power_name):  # exact for integers
        powers = widened(narrowed(powers, power_name))
    return narrowed(_wide(self, wide_name(name)) * powers, name)


def _div_rounded(x: Array, y: Array, rounding_mode: str) -> npt.ArrayLike:
    if rounding_mode == "floor":
        return np.floor_divide(x, y)
    if is_float(x.dtype.name):
        return np.trunc(np.divide(x, y))
    quotient = np.floor_divide(x, y)  # rounded up again where it is negative and not whole
    return quotient + ((quotient < 0) & (quotient * y != x))


_UNARY: dict[str, tuple[Function, str]] = {
    "neg": (np.negative, "first"),
    "abs": (np.abs, "first"),
    "sign": (np.sign, "first"),
    "exp": (np.exp, "float"),
    "expm1": (np.expm1, "float"),
    "log": (np.log, "float"),
    "log1p": (np.log1p, "float"),
    "log2": (np.log2, "float"),
    "log10": (np.log10, "float"),
    "sqrt": (np.sqrt, "float"),
    "rsqrt": (lambda x: 1 / np.sqrt(x), "float"),
    "reciprocal": (lambda x: 1 / x, "float"),
    "square": (np.square, "first"),
    "sin": (np.sin, "float"),
    "cos": (np.cos, "float"),
    "tan": (np.tan, "float"),
    "tanh": (np.tanh, "float"),
    "sigmoid": (_sigmoid, "float"),
    "sinh": (np.sinh, "float"),
    "cosh": (np.cosh, "float"),
    "asin": (np.arcsin, "float"),
    "acos": (np.arccos, "float"),
    "atan": (np.arctan, "float"),
    "acosh": (np.arccosh, "float"),
    "atanh": (np.arctanh, "float"),
    "erf": (_erf, "float"),
    "relu": (lambda x: np.maximum(x, 0), "first"),
    "gelu": (_gelu, "first"),
    "silu": (lambda x: x * _sigmoid(x), "first"),
    "leaky_relu": (lambda x, slope: np.where(x > 0, x, x * slope), "first"),
    "elu": (_elu, "first"),
    "softplus": (_softplus, "first"),
    "floor": (_same_or(np.floor), "first"),
    "ceil": (_same_or(np.ceil), "first"),
    "round": (_same_or(np.round), "first"),
    "trunc": (_same_or(np.trunc), "first"),
    "isnan": (np.isnan, "bool"),
    "isinf": (np.isinf, "bool"),
    "isfinite": (np.isfinite, "bool"),
    "bitwise_not": (np.invert, "first"),
}
_BINARY: dict[str, tuple[Function, str]] = {
    "add": (np.add, "promote"),
    "sub": (np.subtract, "promote"),
    "mul": (np.multiply, "promote"),
    "div": (np.divide, "float"),
    "floor_divide": (np.floor_divide, "promote"),
    "remainder": (np.remainder, "promote"),
    "fmod": (np.fmod, "promote"),
    "pow": (_power, "promote"),
    "maximum": (np.maximum, "promote"),
    "minimum": (np.minimum, "promote"),
    "atan2": (np.arctan2, "float"),
    "eq": (np.equal, "bool"),
    "ne": (np.not_equal, "bool"),
    "lt": (np.less, "bool"),
    "le": (np.less_equal, "bool"),
    "gt": (np.greater, "bool"),
    "ge": (np.greater_equal, "bool"),
    "bitwise_and": (np.bitwise_and, "promote"),
    "bitwise_or": (np.bitwise_or, "promote"),
    "bitwise_xor": (np.bitwise_xor, "promote"),
    "tanh_backward": (lambda grad, out: grad * (1 - out * out), "first"),
    "sigmoid_backward": (lambda grad, out: grad * (1 - out) * out, "first"),
    "relu_backward": (lambda grad, out: np.where(out > 0, grad, 0), "first"),
    "gelu_backward": (_gelu_backward, "first"),
    "silu_backward": (_silu_backward, "first"),
    "leaky_relu_backward": (lambda grad, x, slope: np.where(x > 0, grad, grad * slope), "first"),
    "elu_backward": (_elu_backward, "first"),
    "softplus_backward": (_softplus_backward, "first"),
}
_TERNARY: dict[str, tuple[Function, str]] = {
    "clamp": (_clamp, "promote"),
    "lerp": (lambda start, end, weight: start + weight * (end - start), "promote"),
}


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    table: dict[str, Kernel] = {}
    for operands, rows in enumerate((_UNARY, _BINARY, _TERNARY), start=1):
        table |= {name: _kernel(*row, operands) for name, row in rows.items()}
    return table | {
        "logical_not": _logical(np.logical_not),
        "logical_and": _logical(np.logical_and),
        "logical_or": _logical(np.logical_or),
        "logical_xor": _logical(np.logical_xor),
        "cast": cast,
        "where": _where,
        "masked_fill": _masked_fill,
        "asinh": _kernel(np.arcsinh, "float", 1),
        "sinc": _kernel(np.sinc, "float", 1),
        "xlogy": _kernel(_xlogy, "float", 2),
        "binary_cross_entropy": _kernel(_binary_cross_entropy, "float", 2),
        "div_rounded": _kernel(_div_rounded, "promote", 2),
        "logaddexp": _kernel(np.logaddexp, "promote", 2),
        "erfc": _kernel(special.erfc, "float", 1),
        "lgamma": _kernel(special.lgamma, "float", 1),
        "digamma": _kernel(special.digamma, "float", 1),
        "polygamma": _kernel(special.polygamma, "float", 1),
        "erfinv": _kernel(special.erfinv, "float", 1),
        "fmax": _kernel(np.fmax, "promote", 2),
        "fmin": _kernel(np.fmin, "promote", 2),
        "hypot": _kernel(np.hypot, "promote", 2),
        "copysign": _kernel(np.copysign, "float", 2),
        "nextafter": special.nextafter,
        "ldexp": _ldexp,
    }
