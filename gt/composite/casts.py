"""Conversions between element types, and PyTorch's device methods: a device places nothing."""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

from collections.abc import Callable
from typing import TypeAlias

from gt import _core
from gt._core import Tensor, call
from gt.composite.common import Method
from gt.devices import check_device
from gt.errors import InvalidType

Device: TypeAlias = object  # a string, a number, or what `Tensor.device` returned


def cast(self: Tensor, dtype: _core.dtype) -> Tensor:
    """`self` as `dtype`; the same tensor if it has it already."""
    return self if self.dtype == dtype else call("cast", self, dtype=dtype)


def to(
    self: Tensor,
    *args: _core.dtype | Tensor | Device,
    dtype: _core.dtype | None = None,
    device: Device | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: object = None,
) -> Tensor:
    """`self` with another dtype, or that of another tensor; a device places nothing."""
    wanted = dtype
    check_device(device)
    for argument in args:
        if isinstance(argument, _core.dtype):
            wanted = argument
        elif isinstance(argument, Tensor):
            wanted = argument.dtype
        elif not isinstance(argument, bool):  # a bool is non_blocking, then copy, by position
            check_device(argument)
    out = self if wanted is None else cast(self, wanted)
    return self.clone() if copy and out is self else out


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """`self` with `other`'s dtype."""
    return cast(self, other.dtype)


def type_(
    self: Tensor, dtype: _core.dtype | str | None = None, non_blocking: bool = False
) -> Tensor | str:
    """`self` as `dtype`; without one the name of its tensor class, such as `gt.FloatTensor`."""
    if dtype is None:
        return f"gt.{TENSOR_CLASSES[repr(self.dtype)]}"
    if isinstance(dtype, str):
        names = {f"gt.{name}": key for key, name in TENSOR_CLASSES.items()}
        if dtype.replace("torch.", "gt.") not in names:
            raise InvalidType(f"invalid type: '{dtype}'")
        short = names[dtype.replace("torch.", "gt.")].removeprefix("gt.")
        dtype = next(d for d in DTYPES if repr(d) == f"gt.{short}")
    return cast(self, dtype)


def cpu(self: Tensor, memory_format: object = None) -> Tensor:
    """`self`: a device places nothing."""
    return self


def cuda(self: Tensor, device: Device | None = None, non_blocking: bool = False) -> Tensor:
    """`self`: a device places nothing."""
    return self


def is_floating_point(self: Tensor) -> bool:
    """Whether the dtype is a floating one."""
    return self.dtype.is_floating_point


def caster(dtype: _core.dtype) -> Callable[[Tensor], Tensor]:
    """The method that casts to `dtype`."""

    def method(self: Tensor, memory_format: object = None) -> Tensor:
        return cast(self, dtype)

    method.__doc__ = f"`self` as {dtype!r}."
    return method


TENSOR_CLASSES = {
    "gt.bool": "BoolTensor",
    "gt.uint8": "ByteTensor",
    "gt.int8": "CharTensor",
    "gt.int16": "ShortTensor",
    "gt.int32": "IntTensor",
    "gt.int64": "LongTensor",
    "gt.float16": "HalfTensor",
    "gt.bfloat16": "BFloat16Tensor",
    "gt.float32": "FloatTensor",
    "gt.float64": "DoubleTensor",
}
DTYPES = (
    _core.bool,
    _core.uint8,
    _core.int8,
    _core.int16,
    _core.int32,
    _core.int64,
    _core.float16,
    _core.bfloat16,
    _core.float32,
    _core.float64,
)
METHODS: dict[str, Method] = {
    "to": to,
    "type": type_,
    "type_as": type_as,
    "cpu": cpu,
    "cuda": cuda,
    "is_floating_point": is_floating_point,
    "bool": caster(_core.bool),
    "byte": caster(_core.uint8),
    "char": caster(_core.int8),
    "short": caster(_core.int16),
    "int": caster(_core.int32),
    "long": caster(_core.int64),
    "half": caster(_core.float16),
    "bfloat16": caster(_core.bfloat16),
    "float": caster(_core.float32),
    "double": caster(_core.float64),
}
