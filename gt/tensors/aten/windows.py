"""Lines of windows.txt: operators on images whose windows may reach beyond a cut.

The client writes a line's facts about a call into its instruction; the dispatcher knows no
operator.
"""

import ast
import dataclasses
import functools
import math
import pathlib
from collections.abc import Mapping, Sequence

from gt._core import Tensor
from gt.tensors.aten.schemas import Schema

_FILE = pathlib.Path(__file__).with_name("windows.txt")
# Kinds in the order of their codes in crates/protocol/src/rules/spread/windows.rs.
_KINDS = ("reads", "adds", "places")
# First numbers of an instruction that is no gradient.
_FORWARD = (0, -1)
# Sizes, one for each dimension or one for all.
_Sizes = Sequence[int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Line:
    dimensions: int
    kind: int
    size: str
    stride: str
    padding: str
    dilation: str
    added: str
    # Values that arguments must have.
    condition: Mapping[str, object]


def overloads() -> frozenset[str]:
    """The overloads that windows.txt has lines for."""
    return frozenset(_lines())


@functools.cache
def _lines() -> dict[str, _Line]:
    lines = {}
    for text in _FILE.read_text(encoding="ascii").splitlines():
        if not text.startswith("#"):
            overload, _, rest = text.partition(": ")
            rest, _, test = rest.partition(" if ")
            name, _, value = test.partition(" == ")
            condition = {name: ast.literal_eval(value)} if name else {}
            dimensions, kind, size, stride, padding, dilation, *added = rest.split(" ")
            words = (size, stride, padding, dilation, added[0] if added else "")
            lines[overload] = _Line(int(dimensions), _KINDS.index(kind), *words, condition)
    return lines


def windows(schema: Schema, bound: Sequence[object], stated: Sequence[int]) -> list[int]:
    """The attribute `windows` of a call with the results `stated`; empty if the operator has no
    line.
    """
    line = _lines().get(schema.overload)
    image = bound[0] if bound else None
    if line is None or not isinstance(image, Tensor) or image.ndim <= line.dimensions:
        return []
    named = {argument.name: value for argument, value in zip(schema.arguments, bound, strict=True)}
    if any(named[name] != value for name, value in line.condition.items()):
        return []
    count, rank = line.dimensions, stated[1]
    sizes = _numbers(line.size, named, count)
    strides = _numbers(line.stride, named, count) or sizes
    dilations = _numbers(line.dilation, named, count)
    added = _numbers(line.added, named, count) or [0] * count
    if sizes is None or strides is None or dilations is None:
        return []
    rounds_up = int(bool(named.get("ceil_mode", False)))
    numbers = list(_FORWARD)
    for at, (size, stride, dilation) in enumerate(zip(sizes, strides, dilations, strict=True)):
        extent = dilation * (size - 1) + 1
        if line.padding == "centred":
            padding: tuple[int, int] | None = _centred(extent, stride)
        else:
            padding = _padding(named[line.padding], at, count, extent)
        if padding is None:
            return []
        low, high = padding
        dims = (image.ndim - count + at, rank - count + at)
        padding_behind = high - added[at]
        numbers += [line.kind, *dims, extent, stride, low, padding_behind, rounds_up]
    return numbers


def _numbers(word: str, named: Mapping[str, object], count: int) -> list[int] | None:
    """Numbers of an argument, one for each dimension; None if the argument gives none."""
    if word in {"", "1"}:
        return [1] * count if word else None
    factor, _, name = word.rpartition("*")
    value = named[name]
    numbers = list(value.shape[-count:]) if isinstance(value, Tensor) else _each(value, count)
    return numbers and [number * int(factor or 1) for number in numbers]


def _each(value: object, count: int) -> list[int] | None:
    listed = list(value) if isinstance(value, Sequence) else [value]
    whole = [_whole(x) for x in listed]
    numbers = [x for x in whole if x is not None]
    if not numbers or len(numbers) != len(listed) or len(numbers) not in {1, count}:
        return None
    return numbers * (count // len(numbers))


def _whole(number: object) -> int | None:
    """The factor, if its places are never rounded: they are then equal in a part and in
    the whole.
    """
    if isinstance(number, float):
        is_exact = 1 <= number < 2**16 and math.frexp(number)[0] == 0.5
        return int(number) if is_exact else None
    return number if isinstance(number, int) else None


def _centred(extent: int, stride: int) -> tuple[int, int]:
    """The reach of windows beyond their own elements, equal on both sides."""
    low = (extent - stride + 1) // 2
    return low, extent - stride - low


def _padding(value: object, at: int, count: int, extent: int) -> tuple[int, int] | None:
    """Padding before the image and behind it: "same" puts one more behind if they differ."""
    if isinstance(value, str):
        total = extent - 1 if value == "same" else 0
        return total // 2, total - total // 2
    numbers = _each(value, count)
    return None if numbers is None else (numbers[at], numbers[at])
