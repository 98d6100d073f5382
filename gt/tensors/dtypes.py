"""Facts about element types that need no tensor: promotion, limits, the default dtype."""

import functools
from typing import TypeAlias

import numpy as np

from gt import _core
from gt._core import Tensor, get_default_dtype, set_default_dtype
from gt.errors import InvalidType, NotSupported

Number: TypeAlias = bool | int | float

NUMPY: dict[str, str] = {
    "gt.bool": "bool",
    "gt.uint8": "uint8",
    "gt.int8": "int8",
    "gt.int16": "int16",
    "gt.int32": "int32",
    "gt.int64": "int64",
    "gt.float16": "float16",
    "gt.float32": "float32",
    "gt.float64": "float64",
    "gt.complex64": "complex64",
    "gt.complex128": "complex128",
}
FROM_NUMPY: dict[str, _core.dtype] = {
    "bool": _core.bool,
    "uint8": _core.uint8,
    "int8": _core.int8,
    "int16": _core.int16,
    "int32": _core.int32,
    "int64": _core.int64,
    "float16": _core.float16,
    "float32": _core.float32,
    "float64": _core.float64,
    "complex64": _core.complex64,
    "complex128": _core.complex128,
}
BFLOAT16 = {"eps": 2.0**-7, "tiny": 2.0**-126, "max": 3.3895313892515355e38}


def of_number(value: Number | complex) -> _core.dtype:
    """The dtype of a Python number: bool, int64, the default, or the complex one of its kind."""
    if isinstance(value, bool):
        return _core.bool
    if isinstance(value, complex):
        return complex_of(get_default_dtype())
    return _core.int64 if isinstance(value, int) else get_default_dtype()


def complex_of(dtype: _core.dtype) -> _core.dtype:
    """The complex dtype whose parts have a float's precision; of the halves complex64."""
    return _core.complex128 if dtype in {_core.float64, _core.complex128} else _core.complex64


def part_of(dtype: _core.dtype) -> _core.dtype:
    """The float that the parts of a complex dtype are; other dtypes as they are."""
    return {_core.complex64: _core.float32, _core.complex128: _core.float64}.get(dtype, dtype)


def category(dtype: _core.dtype) -> int:
    """0 bool, 1 integer, 2 float, 3 complex: the higher one wins whatever the widths."""
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else int(dtype != _core.bool)


def promote_types(type1: _core.dtype, type2: _core.dtype) -> _core.dtype:
    """The smallest dtype that both fit in, by PyTorch's lattice."""
    if type1 == type2:
        return type1
    low, high = sorted((type1, type2), key=lambda d: (category(d), d.itemsize, repr(d)))
    if {low, high} == {_core.float64, _core.complex64}:
        return _core.complex128
    if category(low) != category(high):
        return high
    if category(high) >= 2:
        return _core.float32 if high.itemsize == 2 else high
    if _core.uint8 in {type1, type2}:  # unsigned with signed: the next wider signed one
        return _core.int16 if high.itemsize == 1 else high
    return high


def can_cast(from_: _core.dtype, to: _core.dtype) -> bool:
    """True if a result of dtype `from_` may be written into a tensor of dtype `to`."""
    return category(from_) <= category(to)


def as_stored(value: Number, dtype: _core.dtype) -> Number:
    """An integer from 2**63 on as floats hold it, where these are meant; others as they are."""
    is_large = isinstance(value, int) and 2**63 <= value < 2**64
    return float(value) if is_large and (dtype.is_floating_point or dtype.is_complex) else value


def result_type(tensor: Tensor | Number | complex, other: Tensor | Number | complex) -> _core.dtype:
    """The dtype of an operation on both: tensors before 0-d tensors before numbers."""
    return common_type(tensor, other)


def common_type(*operands: Tensor | Number | complex) -> _core.dtype:
    """The dtype of an operation on any number of operands, as `result_type` of two."""
    ranked: list[list[_core.dtype]] = [[], [], []]
    for x in operands:
        if isinstance(x, Tensor):
            ranked[0 if x.ndim else 1].append(x.dtype)
        else:
            ranked[2].append(of_number(x))
    out: _core.dtype | None = None
    for group in ranked:
        for dtype in group:
            if out is None or (group is not ranked[0] and category(dtype) > category(out)):
                # a float keeps its precision
                floats = out is not None and out.is_floating_point
                out = complex_of(out) if out is not None and floats else dtype
            elif group is ranked[0] or out in group:
                out = promote_types(out, dtype)
    assert out is not None, operands
    return out


@functools.cache
def _limits(dtype: str) -> tuple[int, float, float, float, float]:
    """Bits, eps, tiny, max and resolution, which numpy looks up slowly."""
    limits = np.finfo(NUMPY[dtype])
    resolution = float(f"1e-{limits.precision}")
    return int(limits.bits), float(limits.eps), float(limits.tiny), float(limits.max), resolution


class finfo:  # noqa: N801  (PyTorch's name)
    """Limits of a floating dtype: bits, eps, max, min, tiny, smallest_normal, resolution, dtype."""

    def __init__(self, type: _core.dtype | None = None) -> None:
        dtype = part_of(get_default_dtype() if type is None else type)
        if not dtype.is_floating_point:
            raise InvalidType(f"finfo requires a floating point input type, not {dtype!r}")
        self.dtype = repr(dtype).removeprefix("gt.")
        if dtype == _core.bfloat16:
            self.bits, self.eps = 16, BFLOAT16["eps"]
            self.tiny, self.max, self.resolution = BFLOAT16["tiny"], BFLOAT16["max"], 0.01
        else:
            self.bits, self.eps, self.tiny, self.max, self.resolution = _limits(repr(dtype))
        self.min, self.smallest_normal = -self.max, self.tiny

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.smallest_normal:g}, "
            f"tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo:  # noqa: N801  (PyTorch's name)
    """Limits of an integer dtype: bits, max, min, dtype."""

    def __init__(self, type: _core.dtype) -> None:
        if category(type) != 1:
            raise InvalidType(f"iinfo requires an integer input type, not {type!r}")
        limits = np.iinfo(NUMPY[repr(type)])
        self.dtype = repr(type).removeprefix("gt.")
        self.bits, self.min, self.max = int(limits.bits), int(limits.min), int(limits.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


class Layout:
    """A name that PyTorch's code passes along: a layout, or a memory format.

    GT's dense tensors are contiguous whatever a memory format says.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"gt.{self.name}"


sparse_coo = Layout("sparse_coo")
strided = Layout("strided")
contiguous_format = Layout("contiguous_format")
preserve_format = Layout("preserve_format")
channels_last = Layout("channels_last")
channels_last_3d = Layout("channels_last_3d")
_LAYOUTS = (sparse_coo, strided)


def check_layout(layout: object, function: str) -> None:
    """Refuses a `layout=` that the result does not have: factories make strided tensors.

    Args:
        layout: None, one of GT's or one of PyTorch's, which is not imported here.
        function: the function that was called, for the text.

    Raises:
        InvalidType: no layout.
        NotSupported: a layout other than strided.
    """
    if layout is None or layout is strided:
        return
    kind = type(layout).__name__
    if kind != "layout" and layout not in _LAYOUTS:
        type_name = "torch.memory_format" if isinstance(layout, Layout) else kind
        raise InvalidType(f"{function}(): argument 'layout' must be torch.layout, not {type_name}")
    name = str(layout).partition(".")[2]
    if name != strided.name:
        raise NotSupported(
            f"{function}(): layout={name} is not supported, results are strided: "
            "gt.sparse_coo_tensor makes a sparse tensor, x.to_sparse() turns a dense one into it"
        )


__all__ = [
    "can_cast",
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "finfo",
    "get_default_dtype",
    "iinfo",
    "preserve_format",
    "promote_types",
    "result_type",
    "set_default_dtype",
    "sparse_coo",
    "strided",
]
