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
from gt.worker.native import entry
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
# Rows by kernels of their name.
_KERNELS = [
    "relu",
    "sigmoid",
    "tanh",
    "erf",
    "exp",
    "silu",
    "sign",
    "rsqrt",
    "gelu",
    "leaky_relu",
    "softplus",
    "clamp",
    "relu_backward",
    "sigmoid_backward",
    "tanh_backward",
    "silu_backward",
    "gelu_backward",
    "leaky_relu_backward",
    "softplus_backward",
]


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


def _elu(self: Array, alpha: float) -> object:
    """By passes without a choice, for which numpy branches: one of the two summands is 0."""
    if not is_rows(self) or not math.isfinite(alpha):
        return NUMPY["elu"](self, alpha)
    out = np.minimum(self, 0, out=np.empty(self.shape, FLOAT32))
    np.multiply(np.expm1(out, out=out), np.float32(alpha), out=out)
    return np.add(out, np.maximum(self, 0), out=out)


def _elu_backward(grad: Array, self: Array, alpha: float) -> object:
    is_plain = is_rows(grad) and is_rows(self) and grad.shape == self.shape
    results = entry.run("exp", self) if is_plain and self.size else None
    if results is None:
        return NUMPY["elu_backward"](grad, self, alpha)
    (out,) = results
    is_above = np.greater(self, 0)
    steps = [("mul", out, alpha), ("mul", grad, None), ("where", is_above, grad, None)]
    _kernels.chain(out, steps)
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
    table |= {name: entry.of_row(name) for name in _KERNELS}
    return table | {
        "elu": _elu,
        "elu_backward": _elu_backward,
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
