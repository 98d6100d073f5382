"""Lines of windows.txt: operators that may be cut along an image, whose windows reach beyond a cut.

The client puts what a line says of a call into its instruction; the dispatcher knows no operator.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence

from gt._core import Tensor
from gt.aten.schemas import Schema

_FILE = pathlib.Path(__file__).with_name("windows.txt")
# As crates/protocol/src/rules/spread/windows.rs has them.
_KINDS = ("reads", "adds", "places")
# An instruction that is no gradient begins with these.
_FORWARD = (0, -1)
# What is there for each dimension: one number, or one for all.
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


def overloads() -> frozenset[str]:
    """What windows.txt has lines for."""
    return frozenset(_lines())


@functools.cache
def _lines() -> dict[str, _Line]:
    found = {}
    for text in _FILE.read_text(encoding="ascii").splitlines():
        if not text.startswith("#"):
            overload, _, rest = text.partition(": ")
            dimensions, kind, size, stride, padding, dilation, *added = rest.split(" ")
            found[overload] = _Line(
                int(dimensions), _KINDS.index(kind), size, stride, padding, dilation, *added or [""]
            )
    return found


def windows(schema: Schema, bound: Sequence[object], stated: Sequence[int]) -> list[int]:
    """The attribute `windows` of a call whose results are `stated`; empty where it has none."""
    line = _lines().get(schema.overload)
    image = bound[0] if bound else None
    if line is None or not isinstance(image, Tensor) or image.ndim <= line.dimensions:
        return []
    named = {argument.name: value for argument, value in zip(schema.arguments, bound, strict=True)}
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
        padding = _padding(named[line.padding], at, count, extent)
        if padding is None:
            return []
        low, high = padding
        dims = (image.ndim - count + at, rank - count + at)
        padding_behind = high - added[at]
        numbers += [line.kind, *dims, extent, stride, low, padding_behind, rounds_up]
    return numbers


def _numbers(word: str, named: Mapping[str, object], count: int) -> list[int] | None:
    """What an argument says of each dimension; None where it says nothing."""
    if word in {"", "1"}:
        return [1] * count if word else None
    value = named[word]
    if isinstance(value, Tensor):
        return list(value.shape[-count:])
    return _each(value, count)


def _each(value: object, count: int) -> list[int] | None:
    listed = list(value) if isinstance(value, Sequence) else [value]
    numbers = [x for x in listed if isinstance(x, int)]
    if not numbers or len(numbers) != len(listed) or len(numbers) not in {1, count}:
        return None
    return numbers * (count // len(numbers))


def _padding(value: object, at: int, count: int, extent: int) -> tuple[int, int] | None:
    """Before the image and behind it: "same" puts one more behind, where they differ."""
    if isinstance(value, str):
        total = extent - 1 if value == "same" else 0
        return total // 2, total - total // 2
    numbers = _each(value, count)
    return None if numbers is None else (numbers[at], numbers[at])
