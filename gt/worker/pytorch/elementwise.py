"""Elementwise rows for torch: a tensor's own C methods if one has the row's meaning.

An unbound method such as `Tensor.add` is called by the loop directly, without a Python frame: the
tables below therefore hold the methods themselves, and functions only where arguments must move.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gt.worker.backend import InPlace, Kernel

Number = int | float | bool
Operand = Tensor | Number

_UNARY = [
    "neg",
    "abs",
    "sign",
    "exp",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "square",
    "sin",
    "cos",
    "tan",
    "tanh",
    "sigmoid",
    "sinh",
    "cosh",
    "asin",
    "acos",
    "atan",
    "acosh",
    "atanh",
    "erf",
    "relu",
    "floor",
    "ceil",
    "round",
    "trunc",
    "isnan",
    "isinf",
    "isfinite",
    "logical_not",
    "bitwise_not",
]
_BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "lerp",
]
# Methods that take no number in place of a tensor.
_BINARY_OF_TENSORS = ["maximum", "minimum", "atan2", "logical_and", "logical_or", "logical_xor"]
# Functions that take a number first; for other rows it becomes a tensor of the promoted dtype.
_NUMBER_FIRST = [
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "pow",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "where",
]
# Rows with results of bools, which no operand's buffer can hold.
_OF_BOOLS = {"isnan", "isinf", "isfinite", "logical_not", "eq", "ne", "lt", "le", "gt", "ge"}
_IN_PLACE_UNARY = [name for name in _UNARY if name not in _OF_BOOLS]
_IN_PLACE_BINARY = [*(name for name in _BINARY if name not in _OF_BOOLS), "masked_fill"]
# Rows whose operands can be exchanged to the last bit, so that either one's buffer will do.
_COMMUTATIVE = ["add", "mul", "bitwise_and", "bitwise_or", "bitwise_xor"]

_aten = torch.ops.aten
_nn = torch._C._nn  # noqa: SLF001  torch.nn.functional checks arguments again and costs as much as the kernel


def number_as_tensor(number: Operand, *others: Operand | None) -> Tensor:
    """A number as a 0-dim tensor of the dtype to which it promotes the others."""
    if isinstance(number, Tensor):
        return number
    tensors = [other for other in others if isinstance(other, Tensor)]
    if not tensors:
        return torch.tensor(number)
    dtype = torch.result_type(tensors[0], number)
    return torch.full((), number, dtype=dtype, device=tensors[0].device)


def _of_tensors(method: Kernel) -> Kernel:
    def kernel(self: Operand, other: Operand) -> object:
        return method(number_as_tensor(self, other), number_as_tensor(other, self))

    return kernel


def _clamp(self: Tensor, low: Operand | None, high: Operand | None) -> Tensor:
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        low = None if low is None else number_as_tensor(low, self)
        high = None if high is None else number_as_tensor(high, self)
    return torch.clamp(number_as_tensor(self, low, high), low, high)  # type: ignore[arg-type]


def _masked_fill(self: Operand, mask: Tensor, value: Operand) -> Tensor:
    return torch.masked_fill(number_as_tensor(self, value), mask, value)


def _binary_cross_entropy(self: Tensor, target: Tensor) -> Tensor:
    """PyTorch's function on a CPU. On a GPU, without a wait, NaN stands for the error."""
    dtype = torch.promote_types(self.dtype, target.dtype)
    self, target = self.to(dtype), target.to(dtype)
    if self.device.type == "cpu":
        shape = torch.broadcast_shapes(self.shape, target.shape)  # type: ignore[no-untyped-call]
        return _aten.binary_cross_entropy.default(self.expand(shape), target.expand(shape), None, 0)
    log, log_of_rest = (x.log().clamp_(min=-100) for x in (self, 1 - self))
    wrong = (self > 1) | (self < 0)
    return ((target - 1) * log_of_rest - target * log).masked_fill_(wrong, math.nan)


def _lerp(self: Operand, end: Operand, weight: Operand) -> Tensor:
    start = number_as_tensor(self, end, weight)
    return torch.lerp(start, number_as_tensor(end, start), weight)


def _div_rounded(self: Operand, other: Operand, rounding_mode: str) -> Tensor:
    return divided(number_as_tensor(self, other), other, rounding_mode=rounding_mode)


def divided(self: Tensor, other: Operand, *, rounding_mode: str | None) -> Tensor:
    """torch.div, safe for the lowest integer divided by -1, which traps in PyTorch when it
    truncates.
    """
    traps = rounding_mode == "trunc" and self.device.type == "cpu"
    if not traps or torch.result_type(self, other) not in {torch.int32, torch.int64}:
        return torch.div(self, other, rounding_mode=rounding_mode)
    divisor = number_as_tensor(other, self)
    opposite = divisor == -1
    quotient = torch.div(self, divisor.masked_fill(opposite, 1), rounding_mode="trunc")
    return torch.where(opposite, -quotient, quotient)


def _polygamma(self: Tensor, n: int) -> Tensor:
    return torch.polygamma(n, self)


def _cast(self: Tensor, dtype: torch.dtype) -> Tensor:
    return self.to(dtype, copy=True)


def _gelu(self: Tensor, approximate: str) -> Tensor:
    return _nn.gelu(self, approximate=approximate)


def _relu_backward(grad: Tensor, out: Tensor) -> Tensor:
    return _aten.threshold_backward.default(grad, out, 0)


def _gelu_backward(grad: Tensor, self: Tensor, approximate: str) -> Tensor:
    return _aten.gelu_backward.default(grad, self, approximate=approximate)


def _leaky_relu_backward(grad: Tensor, self: Tensor, slope: float) -> Tensor:
    return _aten.leaky_relu_backward.default(grad, self, slope, False)


def _elu_backward(grad: Tensor, self: Tensor, alpha: float) -> Tensor:
    return _aten.elu_backward.default(grad, alpha, 1.0, 1.0, False, self)


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    table: dict[str, Kernel] = {name: getattr(Tensor, name) for name in _UNARY + _BINARY}
    table |= {name: _of_tensors(getattr(Tensor, name)) for name in _BINARY_OF_TENSORS}
    return table | {
        "gelu": _gelu,
        "silu": _nn.silu,
        "leaky_relu": _nn.leaky_relu,
        "elu": _nn.elu,
        "softplus": _nn.softplus,
        "cast": _cast,
        "where": torch.where,
        "clamp": _clamp,
        "masked_fill": _masked_fill,
        "lerp": _lerp,
        "tanh_backward": _aten.tanh_backward.default,
        "sigmoid_backward": _aten.sigmoid_backward.default,
        "relu_backward": _relu_backward,
        "gelu_backward": _gelu_backward,
        "silu_backward": _aten.silu_backward.default,
        "leaky_relu_backward": _leaky_relu_backward,
        "elu_backward": _elu_backward,
        "softplus_backward": _aten.softplus_backward.default,
        "asinh": torch.asinh,
        "sinc": torch.sinc,
        "xlogy": _of_tensors(torch.xlogy),
        "binary_cross_entropy": _of_tensors(_binary_cross_entropy),
        "div_rounded": _div_rounded,
        "logaddexp": _of_tensors(torch.logaddexp),
        "erfc": torch.erfc,
        "lgamma": torch.lgamma,
        "digamma": torch.digamma,
        "polygamma": _polygamma,
        "erfinv": torch.erfinv,
        "fmax": _of_tensors(torch.fmax),
        "fmin": _of_tensors(torch.fmin),
        "hypot": _of_tensors(torch.hypot),
        "copysign": _of_tensors(torch.copysign),
        "nextafter": _of_tensors(torch.nextafter),
        "ldexp": _of_tensors(torch.ldexp),
    }


def number_first() -> dict[str, Kernel]:
    """Kernels for rows whose first operand is a number."""
    table: dict[str, Kernel] = {name: getattr(torch, name) for name in _NUMBER_FIRST}
    for name in ["fmod", "eq", "ne", "lt", "le", "gt", "ge"]:
        table[name] = _of_tensors(getattr(Tensor, name))
    return table


def in_place() -> dict[str, list[InPlace]]:
    """Kernels that write over an operand."""
    method: Callable[[str], Kernel] = lambda name: getattr(Tensor, name + "_")  # noqa: E731
    table: dict[str, list[InPlace]] = {}
    for name in _IN_PLACE_UNARY + _IN_PLACE_BINARY:
        table[name] = [(0b1, method(name), False)]
    for name in _COMMUTATIVE:
        table[name].append((0b10, method(name), True))
    return table
