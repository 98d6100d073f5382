"""Python signatures of PyTorch's schemas, as gt/tensors/aten binds them, for the type stubs.

A type does not express what a schema leaves open, such as dtypes and the number of dimensions.
"""

import functools
import keyword
import re
import sys

from python_source import ROOT

_HEAD = re.compile(r"(?P<name>\w+)(\.\w+)?\((?P<arguments>.*)\) -> (?P<results>.*)")
_COMMA = re.compile(r", (?![^\[]*\])")  # none inside brackets
_TYPES = {
    "Tensor": "Tensor",
    "bool": "_bool",
    "int": "_int",
    "SymInt": "_int",
    "float": "_float",
    "str": "str",
    "Scalar": "_Number",
    "ScalarType": "_dtype",
}
# Types of arguments that are accepted and ignored: any object is allowed.
_IGNORED = {"Device", "Layout", "MemoryFormat"}


@functools.cache
def schemas() -> dict[str, list[tuple[str, str]]]:
    """Letters and schema of each overload, by the operator's name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in (ROOT / "gt/tensors/aten/schemas.txt").read_text().splitlines()[1:]:
        letters, _, schema = line.partition(" ")
        found.setdefault(re.split(r"[.(]", schema, maxsplit=1)[0], []).append((letters, schema))
    return found


def names(letter: str) -> list[str]:
    """Operators in one of PyTorch's namespaces, by its letter in tools/aten_facts.py."""
    return [name for name, lines in schemas().items() if letter in lines[0][0]]


def signatures(name: str, first: str) -> list[str]:
    """Signatures `(…) -> …` of every overload of an operator, whose tensor `self` is called
    `first`.

    Overloads that type checkers cannot distinguish from an earlier one are omitted.
    """
    found = [_signature(name, schema, first) for _, schema in schemas()[name]]
    texts = dict.fromkeys(text for text in found if text)
    lists = [text for text in texts if re.match(r"\(tensors: Sequence\[Tensor\]\) -> ", text)]
    alone = [text.replace("tensors: Sequence[Tensor]", "*tensors: Tensor") for text in lists]
    return sorted([*texts, *alone], key=lambda text: text.count("Tensor"))


def lines(title: str, texts: list[str]) -> list[str]:
    """The stub's lines of a function or method with these signatures."""
    mark = ["@overload"] if len(texts) > 1 else []
    return [line for text in texts for line in (*mark, f"def {title}{text}: ...")]


def _signature(name: str, schema: str, first: str) -> str:
    head = _HEAD.fullmatch(schema)
    assert head is not None, schema
    parts = []
    is_optional = False
    for part in filter(None, _COMMA.split(head["arguments"])):
        if part == "*":
            parts.append("*")
            is_optional = False
            continue
        kind, _, rest = part.partition(" ")
        argument, _, default = rest.partition("=")
        if keyword.iskeyword(argument):
            return ""
        is_self = (argument, kind) == ("self", "Tensor")
        shown = first if is_self else argument
        typed = "self" if is_self and first == "self" else f"{shown}: {_type(kind)}"
        is_optional = is_optional or bool(default)
        parts.append(f"{typed} = {_default(default)}" if is_optional else typed)
    if first == "self" and "self" not in parts:
        return ""
    if first == "self":
        parts.remove("self")
        parts.insert(0, "self")
    return f"({', '.join(parts)}) -> {result(name, head['results'])}"


def _type(kind: str) -> str:
    optional = kind.endswith("?")
    kind = kind.removesuffix("?")
    if kind.endswith("]"):
        item, _, size = kind.removesuffix("]").partition("[")
        listed = f"Sequence[{_type(item)}]"
        typed = f"{_type(item)} | {listed}" if size else listed
    else:
        typed = "object" if kind in _IGNORED else _TYPES[kind]
    return f"{typed} | None" if optional and typed != "object" else typed


def _default(text: str) -> str:
    if text in ("None", "True", "False") or re.fullmatch(r"-?\d+", text):
        return text
    return "..."


def result(name: str, text: str) -> str:
    """Type of a schema's result; from gt.return_types where the results have names."""
    if text == "Tensor":
        return "Tensor"
    if text == "Tensor[]":
        return "tuple[Tensor, ...]"
    parts = text.removeprefix("(").removesuffix(")").split(", ")
    if all(" " in part for part in parts):
        return f"return_types.{name}"
    return f"tuple[{', '.join('Tensor' for _ in parts)}]"


if __name__ == "__main__":
    sys.exit("a part of tools/gen.py, which runs it")
