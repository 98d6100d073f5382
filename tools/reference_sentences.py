"""Sentences of tools/reference.py on a function: summary, arguments, returns and errors."""

import ast
import inspect
import itertools
import pathlib
import re

from reference_sources import PARAMETERS, ROWS, SCHEMAS, SENTENCES, SPACES, Signature

import gt
from gt._core import Function

LINE = 88


def summary_of(space: str, name: str, function: object) -> str:
    prefix = SPACES[space][1]
    known = SENTENCES.get(prefix + name) or (SENTENCES.get(name) if not prefix else None)
    if known:
        return known
    if name.endswith("_copy"):
        return f"`{name.removesuffix('_copy')}`, in memory of its own."
    base = name.removesuffix("_")
    written = own_doc(function)
    if base != name and (base in SENTENCES or not written):
        return f"`{base}`, written into the tensor."
    if written:
        return " ".join(written.partition("\n\n")[0].split())
    if base in ROWS:
        return str(ROWS[base]["doc"])
    raise LookupError(f"{space}.{name} has no sentence: tools/reference/sentences.txt")


def own_doc(function: object) -> str:
    """The docstring of the source, without the text that this tool has written."""
    code = function
    if isinstance(code, Function):
        code = code.__wrapped__
    if inspect.isfunction(code):
        return inspect.cleandoc(original(code))
    text = (inspect.getdoc(code) or "").partition("\n\n")[0]  # Rust's; this tool writes the rest
    return "" if text.startswith("PyTorch's operator") else text


def original(function: object) -> str:
    inner = inspect.unwrap(function)  # type: ignore[arg-type]
    code = getattr(inner, "__code__", None)
    if code is None:
        return inner.__doc__ or ""
    path = pathlib.Path(code.co_filename)
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                text = ast.get_docstring(node) or ""
                made = inner.__doc__ or ""
                return text or ("" if made.startswith("PyTorch's operator") else made)
    return ""


_PARSED: dict[pathlib.Path, ast.Module] = {}


def parsed(path: pathlib.Path) -> ast.Module:
    if path not in _PARSED:
        _PARSED[path] = ast.parse(path.read_text())
    return _PARSED[path]


def sections(text: str) -> dict[str, list[str]]:
    """The lines under each heading of a docstring; those before any heading have the name ""."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for line in text.splitlines():
        if re.fullmatch(r"(Args|Attributes|Returns|Raises|Example):", line):
            name = line[:-1]
            found[name] = []
        else:
            found[name].append(line)
    return found


def own_arguments(written: str) -> dict[str, str]:
    """The phrases of a docstring on its arguments."""
    own: dict[str, str] = {}
    for line in sections(inspect.cleandoc(written)).get("Args", []):
        if match := re.match(r"    (?:\*+)?(\w+): (.*)", line):
            own[last := match[1]] = match[2]
        elif own and line.strip():
            own[last] += " " + line.strip()
    return own


def argument_lines(space: str, name: str, signatures: list[Signature], written: str) -> list[str]:
    own = own_arguments(written)
    prefix = SPACES[space][1] if space in SPACES else ""
    kinds: dict[str, list[str]] = {}
    for parameter in itertools.chain.from_iterable(s.parameters for s in signatures):
        kinds.setdefault(parameter.name, []).extend(
            kind for kind in parameter.type.split(" | ") if kind != "object"
        )
    lines = []
    for word, accepted in kinds.items():
        phrase = (
            PARAMETERS.get(f"{space}.{name}.{word}")
            or PARAMETERS.get(f"{prefix}{name}.{word}")
            or own.get(word)
            or PARAMETERS.get(word)
        )
        if phrase is None:
            raise LookupError(f"{space}.{name}: {word} has no phrase: parameters.txt")
        shown = " or ".join(dict.fromkeys(accepted))
        lines += wrapped(f"{word} ({shown}): {phrase}" if shown else f"{word}: {phrase}")
    return lines


def wrapped(text: str) -> list[str]:
    lines, line = [], "   "
    for word in text.split():
        if len(line) + 1 + len(word) > LINE:
            lines.append(line)
            line = "       "
        line += f" {word}"
    return [*lines, line]


BY_FAMILY = {
    "unary": "A tensor of the input's shape.",
    "elementwise": "A tensor of the shape to which the operands broadcast.",
    "reduce": "A tensor without the dimensions `dim`, of one element each with `keepdim`.",
    "view": "A tensor that shares the input's memory where strides can say so.",
    "create": "A new tensor.",
    "random": "A new tensor.",
}
RAISES = {
    "elementwise": "RuntimeError: Shapes that do not broadcast.",
    "reduce": "IndexError: A dimension that the input does not have.",
    "contract": "RuntimeError: Shapes that cannot be multiplied.",
    "view": "RuntimeError: A shape or a dimension that the input does not have.",
}


def tensors_of(signatures: list[Signature]) -> int:
    """Maximum number of tensors in a call."""
    return max(sum("Tensor" in p.type for p in each.parameters) for each in signatures)


def family_of(name: str, prefix: str, tensors: int) -> str:
    """The family of a row or, for a schema, elementwise or ""; with one tensor, unary."""
    base = name.removesuffix("_")
    if base in ROWS:
        family = str(ROWS[base]["family"])
    else:
        pattern = rf"\w+ {prefix}{base}[.(]"
        letters = {line.split(" ")[0] for line in SCHEMAS if re.match(pattern, line)}
        family = "elementwise" if any("e" in word for word in letters) else ""
    return "unary" if family == "elementwise" and tensors < 2 else family


def returns_of(name: str, family: str, signatures: list[Signature]) -> str:
    results = list(dict.fromkeys(signature.result for signature in signatures))
    if results == ["Tensor"] and name.endswith("_") and not name.startswith("_"):
        return "The tensor itself, with its new values."
    if results == ["Tensor"]:
        return BY_FAMILY.get(family, "A tensor.")
    named = [gt.return_types.FIELDS.get(r.rpartition(".")[2]) for r in results]
    if len(results) == 1 and named[0]:
        return f"A named tuple of tensors: {', '.join(f'`{field}`' for field in named[0])}."
    if results == ["None"]:
        return "Nothing."
    return f"{' or '.join(results).replace(' | ', ' or ')}."
