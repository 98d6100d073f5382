"""Elementwise rows of the native backend: numpy's functions without copies, and gt._kernels.

Quick: float32 and float64 tensors of one dtype, of any strides, and numbers. Activations, `exp`,
`rsqrt` and `sign`: contiguous float32; `clamp`: that, between numbers; `pow`: to a number. `cast`:
all but bfloat16 and complex.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gt import _kernels
from gt.worker.backend import InPlace, Kernel
from gt.worker.native.values import FLOAT32, FLOAT64, POWERS, as_array, is_rows
from gt.worker.reference.kernels import NUMPY
from gt.worker.reference.values import Array, storage

Function = Callable[..., Any]

_FLOATS = (FLOAT32, FLOAT64)
# Rows whose kernel is one function of numpy's for float32 and float64.
_UNARY: dict[str, Function] = {
    "neg": np.negative,
    "abs": np.absolute,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "square": np.square,
    "reciprocal": lambda x: np.true_divide(1.0, x),  # np.reciprocal is not vectorised
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}
_ARITHMETIC: dict[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
_COMPARISON: dict[str, Function] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_ROOTS = {"rsqrt": lambda x: np.true_divide(1.0, np.sqrt(x))}
# Exponents for which PyTorch has these functions too; numpy's power takes up to a hundred times as
# long.
_POWERS: dict[float, Function] = {power: (_UNARY | _ROOTS)[name] for power, name in POWERS.items()}
_POWERS |= {
    3: lambda x: np.square(x) * x,
    -2: lambda x: np.true_divide(1.0, np.square(x)),
}
_OWN = {
    name: getattr(_kernels, name)
    for name in ("relu", "sigmoid", "tanh", "erf", "exp", "silu", "sign", "rsqrt")
}
_OWN_BACKWARD = {
    f"{name}_backward": getattr(_kernels, f"{name}_backward")
    for name in ("relu", "sigmoid", "tanh", "silu")
}
_GELU = {"none": _kernels.gelu, "tanh": _kernels.gelu_tanh}
_GELU_BACKWARD = {"none": _kernels.gelu_backward, "tanh": _kernels.gelu_tanh_backward}


def _unary(name: str, function: Function) -> Kernel:
    otherwise = NUMPY[name]

    def kernel(self: Array) -> Array:
        if type(self) is np.ndarray and self.dtype in _FLOATS:
            return as_array(function(self))
        return otherwise(self)  # type: ignore[return-value]

    return kernel


def _binary(name: str, function: Function) -> Kernel:
    """A kernel for two tensors of one floating dtype, or for one and a number."""
    otherwise = NUMPY[name]

    def kernel(self: object, other: object) -> object:
        if _fit(self, other):
            return as_array(function(self, other))
        return otherwise(self, other)

    return kernel


def _fit(self: object, other: object) -> bool:
    if type(self) is not np.ndarray:
        return type(other) is np.ndarray and other.dtype in _FLOATS and type(self) is float
    if self.dtype not in _FLOATS:
        return False
    if type(other) is np.ndarray:
        return other.dtype is self.dtype
    return type(other) is float or type(other) is int


def _over(function: Function, name: str) -> Kernel:
    """Over the first operand's buffer, where numpy computes in its dtype."""
    otherwise = NUMPY[name]

    def kernel(self: Array, other: object) -> object:
        if _fit(self, other) and self.flags.writeable:
            return function(self, other, out=self)
        return otherwise(self, other)

    return kernel


def _own(name: str, function: Function) -> Kernel:
    otherwise = NUMPY[name]

    def kernel(self: Array) -> object:
        if not is_rows(self):
            return otherwise(self)
        out = np.empty(self.shape, FLOAT32)
        function(self, out)
        return out

    return kernel


def _own_backward(name: str, function: Function) -> Kernel:
    otherwise = NUMPY[name]

    def kernel(grad: Array, kept: Array) -> object:
        if not (is_rows(grad) and is_rows(kept) and grad.shape == kept.shape):
            return otherwise(grad, kept)
        out = np.empty(grad.shape, FLOAT32)
        function(grad, kept, out)
        return out

    return kernel


def _gelu(self: Array, approximate: str) -> object:
    if not is_rows(self):
        return NUMPY["gelu"](self, approximate)
    out = np.empty(self.shape, FLOAT32)
    _GELU[approximate](self, out)
    return out


def _gelu_backward(grad: Array, self: Array, approximate: str) -> object:
    if not (is_rows(grad) and is_rows(self) and grad.shape == self.shape):
        return NUMPY["gelu_backward"](grad, self, approximate)
    out = np.empty(grad.shape, FLOAT32)
    _GELU_BACKWARD[approximate](grad, self, out)
    return out


def _softplus(self: Array, beta: float, threshold: float) -> object:
    if not is_rows(self):
        return NUMPY["softplus"](self, beta, threshold)
    out = np.empty(self.shape, FLOAT32)
    _kernels.softplus(self, beta, threshold, out)
    return out


def _softplus_backward(grad: Array, self: Array, beta: float, threshold: float) -> object:
    if not (is_rows(grad) and is_rows(self) and grad.shape == self.shape):
        return NUMPY["softplus_backward"](grad, self, beta, threshold)
    out = np.empty(self.shape, FLOAT32)
    _kernels.softplus_backward(grad, self, beta, threshold, out)
    return out


def _leaky_relu(self: Array, negative_slope: float) -> object:
    if not is_rows(self):
        return NUMPY["leaky_relu"](self, negative_slope)
    out = np.empty(self.shape, FLOAT32)
    _kernels.leaky_relu(self, negative_slope, out)
    return out


def _leaky_relu_backward(grad: Array, self: Array, negative_slope: float) -> object:
    if not (is_rows(grad) and is_rows(self) and grad.shape == self.shape):
        return NUMPY["leaky_relu_backward"](grad, self, negative_slope)
    out = np.empty(grad.shape, FLOAT32)
    _kernels.leaky_relu_backward(grad, self, negative_slope, out)
    return out


def _elu(self: Array, alpha: float) -> object:
    """By passes without a choice, for which numpy branches: one of the two summands is 0."""
    if not is_rows(self) or not math.isfinite(alpha):
        return NUMPY["elu"](self, alpha)
    out = np.minimum(self, 0, out=np.empty(self.shape, FLOAT32))
    np.multiply(np.expm1(out, out=out), np.float32(alpha), out=out)
    return np.add(out, np.maximum(self, 0), out=out)


def _elu_backward(grad: Array, self: Array, alpha: float) -> object:
    is_plain = is_rows(grad) and is_rows(self) and grad.shape == self.shape
    if not is_plain or not self.size:
        return NUMPY["elu_backward"](grad, self, alpha)
    out = np.empty(self.shape, FLOAT32)
    _kernels.exp(self, out)
    is_above = np.greater(self, 0)
    steps = [("mul", out, alpha), ("mul", grad, None), ("where", is_above, grad, None)]
    _kernels.chain(out, steps)
    return out


def _clamp(self: Array, low: Any, high: Any) -> object:  # noqa: ANN401 - arrays or numbers
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    are_numbers = all(type(one) in (int, float) and not math.isnan(one) for one in bounds)
    if not are_numbers or not is_rows(self):
        return NUMPY["clamp"](self, low, high)
    out = np.empty(self.shape, FLOAT32)
    _kernels.clamp(self, *bounds, out)
    return out


def _pow(self: Any, other: Any) -> object:  # noqa: ANN401 - arrays or numbers
    is_plain = type(self) is np.ndarray and self.dtype in _FLOATS and type(other) in (int, float)
    if not is_plain:
        return NUMPY["pow"](self, other)
    function = _POWERS.get(other)
    return as_array(np.power(self, other) if function is None else function(self))


def _cast(self: object, name: str) -> object:
    """Truncation and rounding are numpy's; bfloat16 and complex numbers are not."""
    if type(self) is not np.ndarray or name == "bfloat16" or self.dtype.kind == "c":
        return NUMPY["cast"](self, name)
    return as_array(self.astype(storage(name)))


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    table = {name: _unary(name, function) for name, function in _UNARY.items()}
    table |= {name: _binary(name, f) for name, f in (_ARITHMETIC | _COMPARISON).items()}
    table |= {name: _own(name, function) for name, function in _OWN.items()}
    table |= {name: _own_backward(name, function) for name, function in _OWN_BACKWARD.items()}
    return table | {
        "gelu": _gelu,
        "gelu_backward": _gelu_backward,
        "softplus": _softplus,
        "softplus_backward": _softplus_backward,
        "leaky_relu": _leaky_relu,
        "leaky_relu_backward": _leaky_relu_backward,
        "elu": _elu,
        "elu_backward": _elu_backward,
        "clamp": _clamp,
        "pow": _pow,
        "cast": _cast,
    }


def in_place() -> dict[str, list[InPlace]]:
    """Kernels that write over an operand."""
    table: dict[str, list[InPlace]] = {}
    for name, function in _ARITHMETIC.items():
        table[name] = [(0b01, _over(function, name), False)]
        if name in ("add", "mul", "maximum", "minimum"):
            table[name].append((0b10, _over(function, name), True))
    return table
