"""Lines of cuts.txt: the dimensions along which PyTorch's operators run on shards.

The client writes a line's facts about a call into its instruction; the dispatcher knows no
operator.
"""

import ast
import dataclasses
import functools
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence

from gt._core import Tensor
from gt.tensors.aten.schemas import Schema

_FILE = pathlib.Path(__file__).with_name("cuts.txt")
_LINE = re.compile(r"(?P<overload>[\w.]+): (?P<given>.+) -> (?P<made>.+?)( if (?P<test>.+))?")
# Codes of crates/protocol/src/rules/spread/generic.rs: whole on each member; the members' results
# add up; given to one member.
_WHOLE, _ADDED, _FIRST = -1, -2, -3
# Name of a letter -> the dimension that has it.
Letters = dict[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Value:
    """An operand or a result in a line: a word for each dimension."""

    words: tuple[str, ...]
    is_added_once: bool

    @property
    def names_dims(self) -> bool:
        """True if an argument names the dimensions that are cut."""
        return any(word.startswith("*-") for word in self.words)


@dataclasses.dataclass(frozen=True, slots=True)
class _Line:
    operands: tuple[_Value, ...]
    results: tuple[_Value, ...]
    # Values that arguments must have.
    condition: Mapping[str, object]


def overloads() -> frozenset[str]:
    """The overloads that cuts.txt has lines for."""
    return frozenset(_lines())


@functools.cache
def _lines() -> dict[str, list[_Line]]:
    lines: dict[str, list[_Line]] = {}
    for text in _FILE.read_text(encoding="ascii").splitlines():
        if text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        assert match is not None, text
        name, _, value = (match["test"] or "").partition(" == ")
        condition = {name: ast.literal_eval(value)} if name else {}
        line = _Line(_values(match["given"]), _values(match["made"]), condition)
        lines.setdefault(match["overload"], []).append(line)
    return lines


def _values(text: str) -> tuple[_Value, ...]:
    """Values of a text; `_` has no dimensions."""
    parts = text.split(", ")
    words = [() if part == "_" else tuple(part.rstrip("+").split(" ")) for part in parts]
    return tuple(_Value(w, part.endswith("+")) for w, part in zip(words, parts, strict=True))


def cuts(schema: Schema, bound: Sequence[object], stated: Sequence[int]) -> list[int]:
    """The attribute `cuts` of a call with the results `stated`; empty if all values stay whole."""
    named = {argument.name: value for argument, value in zip(schema.arguments, bound, strict=True)}
    is_tensor = [argument.type.startswith("Tensor") for argument in schema.arguments]
    tensors = [value for value, listed in zip(bound, is_tensor, strict=True) if listed]
    if any(isinstance(value, list) for value in tensors):
        return []
    shapes = [x.shape if isinstance(x, Tensor) else None for x in tensors]
    results = list(_shapes(stated))
    lines = _lines().get(schema.overload, [])
    if schema.is_pointwise:
        everything = _Value(("*",), is_added_once=False)
        lines = [_Line((everything,) * len(shapes), (everything,) * len(results), {})]
    for line in lines:
        if all(named[name] == value for name, value in line.condition.items()):
            numbers = _fitted(line, shapes, results, named)
            if numbers is not None:
                return numbers
    return []


def _shapes(stated: Sequence[int]) -> Iterator[tuple[int, ...]]:
    rest = list(stated)
    while rest:
        _, rank, *rest = rest
        yield tuple(rest[:rank])
        rest = rest[rank:]


def _fitted(
    line: _Line,
    shapes: Sequence[tuple[int, ...] | None],
    results: Sequence[tuple[int, ...]],
    named: Mapping[str, object],
) -> list[int] | None:
    """The numbers of each letter; None if an operand or result has other dimensions than the
    line's.
    """
    if len(line.operands) != len(shapes) or len(line.results) != len(results):
        return None
    sizes: dict[str, int] = {}
    result_letters = [
        _letters(v, x, sizes, named) for v, x in zip(line.results, results, strict=True)
    ]
    leading = {word for word in sizes if word.startswith("*")}
    pairs = [(v, x) for v, x in zip(line.operands, shapes, strict=True) if x is not None]
    if len({len(shape) for value, shape in pairs if value.names_dims}) > 1:
        return None  # a dimension counted from the front differs between operands
    operand_letters = [_letters(value, shape, sizes, named) for value, shape in pairs]
    if {word for word in sizes if word.startswith("*")} != leading:
        return None  # an operand broadcasts to another shape than the result's
    if any(letters is None for letters in [*result_letters, *operand_letters]):
        return None
    fitted = (
        [letters or {} for letters in operand_letters],
        [letters or {} for letters in result_letters],
    )
    return _numbers(*fitted, [value.is_added_once for value, _ in pairs])


def _numbers(
    given: Sequence[Letters], made: Sequence[Letters], added_once: Sequence[bool]
) -> list[int]:
    numbers = []
    for letter in dict.fromkeys(letter for letters in [*made, *given] for letter in letters):
        is_sum = not any(letter in letters for letters in made)
        for letters, is_once in zip(given, added_once, strict=True):
            absent = _FIRST if is_sum and is_once else _WHOLE
            numbers.append(letters.get(letter, absent))
        numbers += [letters.get(letter, _ADDED) for letters in made]
    return numbers


def _letters(
    value: _Value, shape: tuple[int, ...], sizes: dict[str, int], named: Mapping[str, object]
) -> Letters | None:
    """The dimensions that have letters; None if the value has other dimensions.

    Leading dimensions count from the end, as in broadcasting; `sizes` are those of the results.
    """
    words = _spelled(value.words, len(shape), named)
    if words is None or len(words) != len(shape):
        return None
    letters = {}
    for dim, (word, size) in enumerate(zip(words, shape, strict=True)):
        if word == ".":
            continue
        first_size = sizes.setdefault(word, size)
        if first_size == size:
            letters[word] = dim
        elif size != 1 or not word.startswith("*"):
            return None
    return letters


def _spelled(
    words: tuple[str, ...], rank: int, named: Mapping[str, object]
) -> tuple[str, ...] | None:
    """One word for each of `rank` dimensions."""
    places = [place for place, word in enumerate(words) if word[0] in "*." and word != "."]
    if not places:
        return words
    place, count = places[0], rank - len(words) + 1
    several = _several(words[place], count, named)
    return None if several is None else (*words[:place], *several, *words[place + 1 :])


def _several(word: str, count: int, named: Mapping[str, object]) -> tuple[str, ...] | None:
    """The words of the `count` dimensions for which `word` stands."""
    if word == "...":
        return (".",) * count
    if word == "*":
        return tuple(f"*{place}" for place in range(count, 0, -1))
    dims = named[word[2:]]
    listed = dims if isinstance(dims, list) else [dims]
    is_gone = word[1] == "/" and not named.get("keepdim", False)
    rank = count + len(listed) if is_gone else count
    named_dims = {dim % rank for dim in listed if rank and isinstance(dim, int)}
    if len(named_dims) != len(listed) or not listed:
        return None
    left = [dim for dim in range(rank) if not (is_gone and dim in named_dims)]
    return tuple("." if dim in named_dims else f"*{rank - dim}" for dim in left)
