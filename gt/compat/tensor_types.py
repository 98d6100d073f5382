"""`gt.FloatTensor` and the like, and `gt.Tensor(2, 3)`: PyTorch's oldest constructors.

Arguments of `Tensor.__new__` that are no tensor come here. The classes are names of dtypes: they
have no instances, and `isinstance` tests the dtype.
"""

from collections.abc import Sequence

import numpy as np

from gt import _core
from gt._core import Tensor, get_default_dtype, set_default_dtype
from gt.composite.casts import TensorType, known_dtype
from gt.composite.common import whole
from gt.errors import InvalidType, ShapeError
from gt.tensors.creation import tensor, zeros
from gt.tensors.devices import check_device
from gt.tensors.size import Size

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "set_default_tensor_type",
]


class _Constructor(TensorType):
    """The metaclass of `gt.FloatTensor` and the like: a call makes a tensor."""

    def __call__(self, *data: object, **named: object) -> Tensor:
        return build(self.dtype, data, named)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype == self.dtype


class FloatTensor(metaclass=_Constructor):
    """Tensors of float32: `FloatTensor(2, 3)` from sizes (zeros), `FloatTensor([1, 2])`
    from data.
    """

    dtype = _core.float32


class DoubleTensor(metaclass=_Constructor):
    """Tensors of float64, as `FloatTensor`."""

    dtype = _core.float64


class HalfTensor(metaclass=_Constructor):
    """Tensors of float16, as `FloatTensor`."""

    dtype = _core.float16


class BFloat16Tensor(metaclass=_Constructor):
    """Tensors of bfloat16, as `FloatTensor`."""

    dtype = _core.bfloat16


class LongTensor(metaclass=_Constructor):
    """Tensors of int64, as `FloatTensor`; fractions in data are truncated."""

    dtype = _core.int64


class IntTensor(metaclass=_Constructor):
    """Tensors of int32, as `LongTensor`."""

    dtype = _core.int32


class ShortTensor(metaclass=_Constructor):
    """Tensors of int16, as `LongTensor`."""

    dtype = _core.int16


class CharTensor(metaclass=_Constructor):
    """Tensors of int8, as `LongTensor`."""

    dtype = _core.int8


class ByteTensor(metaclass=_Constructor):
    """Tensors of uint8, as `LongTensor`."""

    dtype = _core.uint8


class BoolTensor(metaclass=_Constructor):
    """Tensors of bool, as `FloatTensor`."""

    dtype = _core.bool


def construct(*data: object, **named: object) -> Tensor:
    """`gt.Tensor(*data)` for arguments other than one tensor, in the default dtype."""
    return build(get_default_dtype(), data, named)


def build(dtype: _core.dtype, data: Sequence[object], named: dict[str, object]) -> Tensor:
    """Zeros for sizes, or a copy of data, distinguished as by PyTorch's `new`.

    Args:
        data: nothing, sizes, one `gt.Size`, or one sequence, array or tensor.
        named: `device`, without effect; `size` or `data` instead of a position.

    Raises:
        InvalidType: the data are none of these, or a tensor of another dtype.
        ShapeError: a size is negative.
    """
    named = dict(named)
    check_device(named.pop("device", None), "new")
    size = named.pop("size", None)
    values = [*data, *(named.pop(key) for key in ("data", "other") if key in named)]
    if named or (size is not None and values):
        raise _misfit([*values, *named.values()])
    if size is not None:
        return _of_sizes(list(size) if isinstance(size, Sequence) else [size], dtype)
    sizes = [whole(value) for value in values if not isinstance(value, bool | Tensor)]
    if len(sizes) == len(values) and None not in sizes:
        return _of_sizes(values or [0], dtype)
    if len(values) != 1:
        raise _misfit(values)
    if isinstance(values[0], Size):
        return _of_sizes(list(values[0]), dtype)
    return _of_data(values[0], dtype)


def new(self: Tensor, *data: object, **named: object) -> Tensor:
    """`FloatTensor(...)` with this tensor's dtype: zeros for sizes, or a copy of data."""
    return build(self.dtype, data, named)


def set_default_tensor_type(t: object, /) -> None:
    """Make the dtype of a tensor class, or of its name, the default one.

    Raises:
        InvalidType: the class's dtype is not a floating-point one.
    """
    dtype = tensor([0.0]).type(t).dtype if isinstance(t, str) else getattr(t, "dtype", None)
    if t is Tensor:
        dtype = get_default_dtype()
    if not isinstance(dtype, _core.dtype) or not dtype.is_floating_point:
        raise InvalidType("only floating-point types are supported as the default type")
    set_default_dtype(dtype)


def install() -> None:
    """Attach `Tensor.new`."""
    setattr(Tensor, "new", new)  # noqa: B010 - the stub calls it a method


def _of_sizes(values: Sequence[object], dtype: _core.dtype) -> Tensor:
    sizes = [int(value) for value in values]  # type: ignore[call-overload]
    for size in sizes:
        if size < 0:
            raise ShapeError(f"Trying to create tensor with negative dimension {size}: {sizes}")
    return zeros(*sizes, dtype=dtype) if sizes else zeros((), dtype=dtype)


def _of_data(given: object, dtype: _core.dtype) -> Tensor:
    if isinstance(given, Tensor):
        if given.dtype != dtype:
            wanted, own = (f"TensorOptions(dtype={d.name})" for d in (dtype, given.dtype))
            raise InvalidType(f"expected {wanted} (got {own})")
        return given
    if isinstance(given, str):
        raise InvalidType("new(): invalid data type 'str'")
    foreign = known_dtype(getattr(given, "dtype", None)) is not None  # a tensor of another library
    if isinstance(given, np.ndarray) or foreign:
        return tensor(given, dtype=dtype)  # type: ignore[arg-type]
    if not isinstance(given, Sequence):
        raise InvalidType(f"new(): data must be a sequence (got {_named(given)})")
    return tensor(list(given), dtype=dtype)


def _named(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _misfit(values: Sequence[object]) -> InvalidType:
    kinds = ", ".join(type(value).__name__ for value in values)
    return InvalidType(
        f"new() received an invalid combination of arguments - got ({kinds}), but expected one of:"
        "\n * (*, torch.device device = None)\n * (Tensor other)\n * (tuple of ints size, *, "
        "torch.device device = None)\n * (object data, *, torch.device device = None)"
    )
