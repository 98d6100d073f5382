"""Values of the numpy backend: arrays, dtypes by name, and PyTorch's promotion.

numpy has no bfloat16, so such an array holds the bits as uint16 and is marked by its class. Kernels
compute in a wide dtype (float32 for both half dtypes) and round once, as torch does on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# An array of any dtype: numpy's stubs do not compute with `generic`.
Array = npt.NDArray[Any]
Places = tuple[Any, ...]
Number = int | float | bool
Operand = Array | Number | None

# Names of dtypes in the order of their numbers on the wire.
DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
_COMPLEX = ("complex64", "complex128")
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_HALVES = ("float16", "bfloat16")
_ROUND_TO_EVEN = np.uint32(0x7FFF)
_QUIET_NAN = np.uint16(0x7FC0)


class Bfloat16(np.ndarray):
    """The bits of bfloat16 numbers, as uint16."""


def dtype_name(value: Operand) -> str:
    """Name of the dtype; for a number, that of the dtype that PyTorch gives it."""
    if isinstance(value, Bfloat16):
        return "bfloat16"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    return "float32" if isinstance(value, float) else np.asarray(value).dtype.name


def is_float(name: str) -> bool:
    """True if the dtype is one of the four floating-point ones."""
    return name in _FLOATS


def is_complex(name: str) -> bool:
    """True if the dtype is a complex one."""
    return name in _COMPLEX


def wide_name(name: str) -> str:
    """Name of the dtype in which kernels compute."""
    return "float32" if name in _HALVES else name


def storage(name: str) -> np.dtype[np.generic]:
    """numpy's dtype for the memory of such an array."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def widened(value: Array) -> Array:
    """The numbers of an array, in a dtype with which numpy can compute."""
    if isinstance(value, Bfloat16):
        bits = np.asarray(value).astype(np.uint32) << np.uint32(16)
        return np.asarray(bits).view(np.float32)
    return value.astype(np.float32) if value.dtype == np.float16 else value


def narrowed(value: npt.ArrayLike, name: str) -> Array:
    """The numbers rounded to a dtype, always in new memory."""
    array = np.array(value)
    if name != "bfloat16":
        return np.array(array.astype(name))
    single = np.ascontiguousarray(array.astype(np.float32)).reshape(array.shape)
    bits = np.asarray(single.view(np.uint32))
    rounded = (bits + _ROUND_TO_EVEN + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    halves = np.where(np.isnan(single), _QUIET_NAN, rounded.astype(np.uint16))
    return np.asarray(halves, dtype=np.uint16).view(Bfloat16)


def marked(value: npt.ArrayLike, like: Array) -> Array:
    """Elements that were only moved, marked as the array from which they came."""
    array = np.asarray(value)
    return array.view(Bfloat16) if isinstance(like, Bfloat16) else array


def cast(value: Operand, name: str) -> Array:
    """A copy in another dtype."""
    if not isinstance(value, np.ndarray):
        return narrowed(np.asarray(value), name)
    wide = widened(value)
    if name == "bool":
        return narrowed(wide != 0, name)
    return narrowed(wide.real if wide.dtype.kind == "c" and not is_complex(name) else wide, name)


def _category(name: str) -> int:
    if is_complex(name):
        return 3
    return 2 if is_float(name) else 0 if name == "bool" else 1


def promoted(left: str, right: str) -> str:
    """The dtype to which both are promoted, as in PyTorch."""
    if left == right:
        return left
    if "float64" in (left, right) and "complex64" in (left, right):
        return "complex128"
    if _category(left) != _category(right):
        return max(left, right, key=_category)
    if {left, right} == set(_HALVES):
        return "float32"
    if is_float(left) or is_complex(left):
        return max(left, right, key=DTYPES.index)
    if "uint8" in (left, right):
        other = right if left == "uint8" else left
        return "int16" if other == "int8" else other
    return max(left, right, key=DTYPES.index)


def promotion(operands: Sequence[Operand]) -> str:
    """The dtype of a result by PyTorch's promotion: tensors, then 0-dim tensors, then numbers, by
    category.
    """
    ranks: list[str | None] = [None, None, None]
    for operand in operands:
        if operand is None:
            continue
        rank = 2 if not isinstance(operand, np.ndarray) else 0 if operand.ndim else 1
        name, earlier = dtype_name(operand), ranks[rank]
        ranks[rank] = name if earlier is None else promoted(earlier, name)
    result: str | None = None
    for dtype in ranks:
        if dtype is None:
            continue
        if result is None:
            result = dtype
        elif _category(dtype) > _category(result):
            is_wider = is_float(result) and is_complex(dtype)
            result = _complex_of(result) if is_wider else promoted(result, dtype)
    return result or "float32"


def _complex_of(name: str) -> str:
    """The complex dtype whose parts have the precision of a float dtype."""
    return "complex128" if name == "float64" else "complex64"


def in_whole(shard: Array, dim: int, start: int, total: int, rest: float = 0) -> Array:
    """The whole dimension with the shard in its place, and `rest` elsewhere."""
    if shard.ndim == 0:
        return shard
    widths = [(0, 0)] * shard.ndim
    widths[dim] = (start, total - start - shard.shape[dim])
    return marked(np.pad(np.asarray(shard), widths, constant_values=rest), shard)
