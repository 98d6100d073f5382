"""A member's share of an operator with windows over an image that is cut.

The attribute `parts` (crates/protocol/src/rules/spread/windows.rs writes it) has six numbers for
each entry. The operator runs on the member's rows and on the rows around them; the member keeps its
own rows of the results.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

# A tensor of PyTorch or an array of numpy.
Values = Any
Operands = Sequence[Values]
# The operator: operands -> results.
Forward = Callable[[Operands], tuple[Values, ...]]
# The operator's gradient: operands, places of the wanted operands -> their gradients.
Backward = Callable[[Operands, Sequence[int]], tuple[Values, ...]]
# A function that puts zeros around an array: so many before and behind in each dimension.
Pad = Callable[[Values, list[tuple[int, int]]], Values]

_KEPT, _GROWN, _OWN, _PLACES = range(4)
_WIDTH = 6
# End mark of the places of one derivative.
_END = -1


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """One dimension of the operand or result at `place`."""

    place: int
    dim: int
    numbers: tuple[int, int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """Entries of an attribute, by kind."""

    kept: tuple[_Entry, ...]
    grown: tuple[_Entry, ...]
    own: tuple[_Entry, ...]
    places: tuple[_Entry, ...]


@functools.lru_cache(maxsize=4096)
def parse(numbers: tuple[int, ...]) -> Parts:
    """Parses the entries of an attribute."""
    entries: list[list[_Entry]] = [[], [], [], []]
    for at in range(0, len(numbers), _WIDTH):
        kind, place, dim, first, second, third = numbers[at : at + _WIDTH]
        if not 0 <= kind <= _PLACES:
            raise ValueError(f"{kind} is no kind of part")
        entries[kind].append(_Entry(place, dim, (first, second, third)))
    return Parts(*map(tuple, entries))


def forward(numbers: Sequence[int], operator: Forward, operands: Operands) -> tuple[Values, ...]:
    """The member's results."""
    parts = parse(tuple(numbers))
    results = [_kept(x, parts.kept, place) for place, x in enumerate(operator(operands))]
    for place in {entry.place for entry in parts.places}:
        image = _Image.of(operands[0], parts.places)
        results[place] = image.to_whole(results[place])
    return tuple(results)


def backward(
    numbers: Sequence[int],
    gradients: Backward,
    operands: Operands,
    wanted: Sequence[int],
    pad: Pad,
) -> tuple[Values, ...]:
    """The member's gradients: its own part for cut operands, its contribution for whole ones."""
    parts = parse(tuple(numbers))
    values = list(operands)
    for place in {entry.place for entry in parts.places}:
        if values[place] is not None:  # a second run finds them again
            values[place] = _Image.of(operands[0], parts.places).to_part(values[place])
    cut = {entry.place for entry in parts.kept}
    results: list[Values] = [None] * (len(wanted) - 1)
    for is_cut in (True, False):
        places = [at for at in range(len(results)) if (at in cut) == is_cut]
        if not places:
            continue
        entries = parts.grown if is_cut else _grown_around(parts)
        own_values = values if is_cut else [_own(x, parts.own, at) for at, x in enumerate(values)]
        full = [_grown(x, entries, at, pad) for at, x in enumerate(own_values)]
        part_gradients = gradients(full, [*(wanted[at] for at in places), _END])
        for at, gradient in zip(places, part_gradients, strict=True):
            results[at] = _kept(gradient, parts.kept, at)
    return tuple(results)


def _grown_around(parts: Parts) -> tuple[_Entry, ...]:
    """Fills rows that must not count in sums with zeros, too."""
    own = {(entry.place, entry.dim): entry.numbers for entry in parts.own}
    entries = []
    for entry in parts.grown:
        before, behind, size = entry.numbers
        first, count, _ = own[entry.place, entry.dim]
        behind += size - first - count
        entries.append(_Entry(entry.place, entry.dim, (before + first, behind, count)))
    return tuple(entries)


def _range(x: Values, dim: int, first: int, count: int) -> Values:
    if first < 0 or count < 1 or first + count > x.shape[dim]:
        raise ValueError(f"{first} and {count} more of dimension {dim} of {tuple(x.shape)}")
    return x[(slice(None),) * dim + (slice(first, first + count),)]


def _kept(x: Values, entries: Sequence[_Entry], place: int) -> Values:
    for entry in entries:
        if entry.place == place:
            x = _range(x, entry.dim, entry.numbers[0], entry.numbers[1])
    return x


def _own(x: Values, entries: Sequence[_Entry], place: int) -> Values:
    return x if x is None else _kept(x, entries, place)


def _grown(x: Values, entries: Sequence[_Entry], place: int, pad: Pad) -> Values:
    if x is None:
        return x
    amounts = [(0, 0)] * len(x.shape)
    for entry in entries:
        if entry.place == place:
            amounts[entry.dim] = (entry.numbers[0], entry.numbers[1])
    return pad(x, amounts) if any(map(any, amounts)) else x


@dataclasses.dataclass(frozen=True, slots=True)
class _Image:
    """Position of a member's image in the whole one, a number a dimension."""

    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    whole: tuple[int, ...]

    @staticmethod
    def of(image: Values, entries: Sequence[_Entry]) -> _Image:
        count = entries[0].numbers[2]
        sizes = tuple(image.shape[-count:])
        starts, whole = [0] * count, list(sizes)
        for entry in entries:
            at = entry.dim - (len(image.shape) - count)
            starts[at], whole[at] = entry.numbers[:2]
        return _Image(tuple(starts), sizes, tuple(whole))

    def to_whole(self, places: Values) -> Values:
        """Indices of the image's elements, as indices in the whole image."""
        return _renumbered(places, self.sizes, self.whole, self.starts)

    def to_part(self, places: Values) -> Values:
        """Indices in the whole image, as indices in the member's image."""
        return _renumbered(places, self.whole, self.sizes, [-start for start in self.starts])


def _renumbered(
    places: Values, sizes: Sequence[int], target: Sequence[int], starts: Sequence[int]
) -> Values:
    numbers, scale = 0 * places, 1
    for size, total, start in reversed(list(zip(sizes, target, starts, strict=True))):
        numbers = numbers + (places % size + start) * scale
        places = places // size
        scale *= total
    return numbers
