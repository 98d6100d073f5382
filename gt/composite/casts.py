"""Conversions between element types, and PyTorch's device methods: a device places nothing."""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

from collections.abc import Callable
from typing import TypeAlias

from gt import _core
from gt._core import Tensor, call
from gt.composite.common import Method
from gt.errors import InvalidType, InvalidValue
from gt.tensors.devices import check_device
from gt.tensors.dtypes import check_layout

Device: TypeAlias = object  # a string, a number, or what `Tensor.device` returned


def cast(self: Tensor, dtype: _core.dtype) -> Tensor:
    """`self` in `dtype`; `self` itself if it has that dtype."""
    return self if self.dtype == dtype else call("cast", self, dtype=dtype)


def to(
    self: Tensor,
    *args: _core.dtype | type | Tensor | Device,
    dtype: _core.dtype | type | None = None,
    device: Device | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: object = None,
    layout: object = None,
    pin_memory: bool = False,
    other: Tensor | None = None,
) -> Tensor:
    """`self` in another dtype, or in that of another tensor; a device places nothing."""
    check_device(device)
    check_layout(layout, "to")
    target = target_dtype(args if other is None else (*args, other), dtype)
    switches = [argument for argument in args if isinstance(argument, bool)]  # non_blocking, copy
    out = self if target is None else cast(self, target)
    return self.clone() if (copy or switches[1:] == [True]) and out is self else out


def known_dtype(value: object) -> _core.dtype | None:
    """The dtype that a value names: GT's, Python's float, int or bool, or PyTorch's; None for
    others.
    """
    if isinstance(value, _core.dtype):
        return value
    if isinstance(value, type):
        return PYTHON_TYPES.get(value)
    if type(value).__name__ != "dtype":
        return None
    return next((each for each in DTYPES if str(value) == f"torch.{each.name}"), None)


def target_dtype(args: tuple[object, ...], dtype: _core.dtype | type | None) -> _core.dtype | None:
    """The dtype among the arguments of a tensor's or module's `to`; None if there is none.

    Args:
        args: a device, a dtype, a tensor with the target dtype, or bools.
        dtype: the keyword; Python's float, int and bool are dtypes too.

    Raises:
        InvalidType: there is another argument, or there are several dtypes.
    """
    dtypes = [] if dtype is None else [known_dtype(dtype)]
    for argument in args:
        if isinstance(argument, Tensor):
            dtypes.append(argument.dtype)
        elif isinstance(argument, (type, list, dict)) or known_dtype(argument) is not None:
            dtypes.append(known_dtype(argument))
        elif not isinstance(argument, bool):
            check_device(argument)
    if len(dtypes) > 1 or (dtypes and dtypes[0] is None):
        types = ", ".join(type(argument).__name__ for argument in args)
        raise InvalidType(
            f"to() received an invalid combination of arguments - got ({types}), but expected one "
            "of:\n * (device, dtype, non_blocking, copy)\n * (dtype, non_blocking, copy)\n"
            " * (Tensor other, non_blocking, copy)"
        )
    return dtypes[0] if dtypes else None


class TensorType(type):
    """The metaclass of tensor types, such as `gt.FloatTensor`, which stand for dtypes."""

    dtype: _core.dtype


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """`self` with `other`'s dtype."""
    return cast(self, other.dtype)


def type_(
    self: Tensor, dtype: _core.dtype | type | str | None = None, non_blocking: bool = False
) -> Tensor | str:
    """`self` in `dtype`; without `dtype` the name of its tensor class, such as `gt.FloatTensor`."""
    if dtype is None:
        return f"gt.{TENSOR_CLASSES[repr(self.dtype)]}"
    if isinstance(dtype, TensorType):
        return cast(self, dtype.dtype)
    if dtype is Tensor:
        return cast(self, _core.get_default_dtype())
    if isinstance(dtype, type):  # Python's float, int and bool are no dtypes here
        raise InvalidValue(f"invalid type: '{dtype.__name__}'")
    if isinstance(dtype, str):
        names = {f"gt.{name}": key for key, name in TENSOR_CLASSES.items()}
        full = dtype.replace("torch.", "gt.").replace("gt.cuda.", "gt.")
        if full not in names:
            raise InvalidValue(f"invalid type: '{dtype}'")
        short = names[full].removeprefix("gt.")
        dtype = next(d for d in DTYPES if repr(d) == f"gt.{short}")
    return cast(self, dtype)


def cpu(self: Tensor, memory_format: object = None) -> Tensor:
    """`self`: a device places nothing."""
    return self


def cuda(self: Tensor, device: Device | None = None, non_blocking: bool = False) -> Tensor:
    """`self`: a device places nothing."""
    return self


def is_floating_point(self: Tensor) -> bool:
    """True if the dtype is a floating-point one."""
    return self.dtype.is_floating_point


def is_complex(self: Tensor) -> bool:
    """True if the dtype is a complex one."""
    return self.dtype.is_complex


def caster(dtype: _core.dtype) -> Callable[[Tensor], Tensor]:
    """The method that casts to `dtype`."""

    def method(self: Tensor, memory_format: object = None) -> Tensor:
        """`self` in this dtype."""
        return cast(self, dtype)

    method.__doc__ = f"`self` as {dtype!r}."
    return method


PYTHON_TYPES: dict[type, _core.dtype] = {
    float: _core.float64,
    int: _core.int64,
    bool: _core.bool,
    complex: _core.complex128,
}
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
    "gt.complex64": "ComplexFloatTensor",
    "gt.complex128": "ComplexDoubleTensor",
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
    _core.complex64,
    _core.complex128,
)


def class_of(dtype: _core.dtype) -> str:
    """PyTorch's word for a dtype in errors, such as "Float" for float32."""
    return TENSOR_CLASSES[repr(dtype)].removesuffix("Tensor")


def is_signed(self: Tensor) -> bool:
    """True if the dtype has negative numbers."""
    return self.dtype.is_floating_point or self.dtype.is_complex or self.dtype in (
        _core.int8, _core.int16, _core.int32, _core.int64,
    )  # fmt: skip


def is_nonzero(self: Tensor) -> bool:
    """True if the tensor's one element is not zero; reads it.

    Raises:
        RuntimeError: the tensor does not have exactly one element.
    """
    return self.__bool__()


METHODS: dict[str, Method] = {
    "is_signed": is_signed,
    "is_nonzero": is_nonzero,
    "to": to,
    "type": type_,
    "type_as": type_as,
    "cpu": cpu,
    "cuda": cuda,
    "is_floating_point": is_floating_point,
    "is_complex": is_complex,
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
    "cfloat": caster(_core.complex64),
    "cdouble": caster(_core.complex128),
}
