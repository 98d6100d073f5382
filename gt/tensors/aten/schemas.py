"""Schemas of the operators that the generic instruction may name: schemas.txt and own.txt.

A schema is parsed when its operator is first called: `import gt` reads none.
"""

import dataclasses
import functools
import pathlib
import re

# Files of schemas: PyTorch's, and GT's own.
_FILES = [pathlib.Path(__file__).with_name(name) for name in ("schemas.txt", "own.txt")]
_OVERLOADED = pathlib.Path(__file__).with_name("overloaded.txt")
_HEAD = re.compile(r"(?P<name>\w+)(\.(?P<overload>\w+))?\((?P<arguments>.*)\) -> (?P<results>.*)")
_ARGUMENT = re.compile(r"(?P<type>\w+(\[\d*\])?\??(\[\d*\])?\??) (?P<name>\w+)(=(?P<default>.*))?")
# Commas between arguments: none inside brackets.
_COMMA = re.compile(r", (?![^\[]*\])")


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument: its name, PyTorch's word for its type, and its default if it is optional."""

    name: str
    type: str
    default: object
    is_required: bool
    is_keyword: bool


@dataclasses.dataclass(frozen=True)
class Schema:
    """One overload: `name.overload` as in an instruction, its arguments in order, its results'
    names.
    """

    overload: str
    arguments: tuple[Argument, ...]
    # Names of the results, empty if the schema has none; "[]" for one list of tensors.
    results: tuple[str, ...]
    is_dependent: bool
    # True if each element of a result depends only on the operands' elements at its place.
    is_pointwise: bool


@functools.cache
def _lines() -> dict[str, list[tuple[str, str]]]:
    """Name of an operator -> letters and schema of each overload."""
    lines: dict[str, list[tuple[str, str]]] = {}
    texts = [file.read_text(encoding="ascii").splitlines() for file in _FILES]
    for line in (line for text in texts for line in text if not line.startswith("#")):
        letters, _, schema = line.partition(" ")
        lines.setdefault(re.split(r"[.(]", schema, maxsplit=1)[0], []).append((letters, schema))
    return lines


def _of(name: str) -> list[tuple[str, str]]:
    """Letters and schema of each overload of `name`, or of `name.overload`."""
    name, _, overload = name.partition(".")
    start = f"{name}(" if overload == "default" else f"{name}.{overload}("
    return [line for line in _lines()[name] if not overload or line[1].startswith(start)]


def is_overloaded(name: str, count: int) -> bool:
    """True if PyTorch's error for so many arguments lists signatures and names no argument."""
    return str(count) in _overloaded().get(name, ())


@functools.cache
def _overloaded() -> dict[str, list[str]]:
    lines = _OVERLOADED.read_text(encoding="ascii").splitlines()[1:]
    return {name: counts.split() for name, _, counts in (line.partition(" ") for line in lines)}


def overloads_allowed() -> frozenset[str]:
    """The names that an instruction may have: `name` or `name.overload`."""
    return frozenset(schema.partition("(")[0] for lines in _lines().values() for _, schema in lines)


def names(letter: str) -> list[str]:
    """Names of the operators in one of torch's namespaces, by its letter (tools/aten_facts.py)."""
    return [name for name, lines in _lines().items() if letter in lines[0][0]]


def known() -> frozenset[str]:
    """Names of all operators."""
    return frozenset(_lines())


def texts(name: str) -> list[str]:
    """The schemas of an operator, or of `name.overload`, as torch writes them."""
    return [text for _, text in _of(name)]


@functools.cache
def of(name: str) -> tuple[Schema, ...]:
    """The overloads of an operator; those that take a number where others take a tensor come first.

    For `name.overload` only that one; an overload without a name is `name.default`.
    """
    overloads = [parsed(letters, text) for letters, text in _of(name)]
    return tuple(sorted(overloads, key=_tensors))


def _tensors(schema: Schema) -> int:
    return sum(argument.type.startswith("Tensor") for argument in schema.arguments)


def parsed(letters: str, text: str) -> Schema:
    """The schema that a text describes, with the facts that its letters stand for."""
    head = _HEAD.fullmatch(text)
    assert head is not None, text
    arguments, is_keyword = [], False
    for part in _COMMA.split(head["arguments"]):
        if part == "*":
            is_keyword = True
            continue
        match = _ARGUMENT.fullmatch(part)
        assert match is not None, (text, part)
        default = match["default"]
        arguments.append(
            Argument(
                match["name"],
                match["type"].replace("SymInt", "int"),
                _default(default, match["type"]),
                default is None,
                is_keyword,
            )
        )
    results = head["results"]
    listed = ("[]",) if results.endswith("[]") else ()
    named = listed or tuple(
        part.partition(" ")[2] for part in results.removeprefix("(").removesuffix(")").split(", ")
    )
    overload = text.partition("(")[0]
    return Schema(overload, tuple(arguments), named, "d" in letters, "e" in letters)


def _default(text: str | None, kind: str) -> object:
    words = {"None": None, "True": True, "False": False, "inf": float("inf")}
    # Reductions as numbers, and the memory format that a result has anyway.
    words |= {"Mean": 1, "contiguous_format": None}
    if text is None or text in words:
        return None if text is None else words[text]
    if text[0] in "\"'":
        return text[1:-1]
    if text[0] == "[":
        return [_default(item, kind) for item in text[1:-1].split(", ") if item]
    return float(text) if "float" in kind or "." in text or "e" in text else int(text)
