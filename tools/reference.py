"""Writes gt/documentation: the text of every function, of signatures, sentences and examples.

Signatures come from the type stubs, sentences from ops.toml, docstrings and tools/reference, where
phrases for parameters stand, too. Examples that it finds are run by GT and by PyTorch, whose
results are equal. `python tools/reference.py` writes all, with `--check` it compares only; it needs
torch. Functions for which it knows no example are printed and keep the docstring that they have.
"""

import argparse
import ast
import contextlib
import dataclasses
import importlib
import inspect
import io
import itertools
import pathlib
import re
import sys
import tomllib
import types
import warnings
from collections.abc import Iterator

import torch
from python_source import ROOT, Row

# Functions say what their sources say: what an earlier run has written is not attached to them.
bare = types.ModuleType("gt.documentation")
bare.__dict__.update(attach=lambda *_: None, text=lambda *_: None)
sys.modules[bare.__name__] = bare

import gt  # noqa: E402
from gt._core import Function  # noqa: E402

FOLDER = ROOT / "gt/documentation"
SPACES = {
    "gt": ("gt/__init__.pyi", ""),
    "gt.linalg": ("gt/linalg.pyi", "linalg_"),
    "gt.fft": ("gt/fft.pyi", "fft_"),
    "gt.special": ("gt/special.pyi", "special_"),
    "gt.nn.functional": ("gt/nn/functional/from_schemas.pyi", ""),
}
ATTEMPTS = 400
LINE = 88
BLANK = "<BLANKLINE>"  # as doctest has it


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter as it is shown; `default` is empty where there is none."""

    name: str
    type: str
    default: str
    starred: str = ""
    is_keyword: bool = False


@dataclasses.dataclass(frozen=True)
class Signature:
    """One form of a call."""

    parameters: tuple[Parameter, ...]
    result: str


def phrases(file: str) -> dict[str, str]:
    lines = (ROOT / "tools/reference" / file).read_text().splitlines()
    pairs = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {name: phrase for name, _, phrase in pairs}


SENTENCES, PARAMETERS, EXAMPLES = map(phrases, ("sentences.txt", "parameters.txt", "examples.txt"))
ROWS: dict[str, Row] = {
    row["name"]: row for row in tomllib.loads((ROOT / "ops.toml").read_text())["op"]
}


# ---- signatures --------------------------------------------------------------------------------


def shown_type(text: str) -> str:
    """A type of the stubs in the words of a reader."""
    text = re.sub(r"\b_(bool|int|float|dtype|type)\b", r"\1", text)
    text = text.replace("builtins.", "").replace("_DtypeArg", "dtype").replace("_Number", "number")
    text = re.sub(r"\b(Operand)\b", "Tensor | number", text)
    text = re.sub(r"\b(Number|Real)\b", "number", text)
    text = re.sub(r"\b(_Dims|Dims|Shape)\b", "int | Sequence[int]", text)
    return re.sub(r"\b(?:gt\.|collections\.abc\.|typing\.|_core\.)", "", text)


def stub_signatures(path: str) -> dict[str, list[Signature]]:
    found: dict[str, list[Signature]] = {}
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(of_stub(node))
    return found


def of_stub(node: ast.FunctionDef) -> Signature:
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    gaps: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
    parameters = [
        of_argument(argument, default)
        for argument, default in zip(plain, [*gaps, *arguments.defaults], strict=True)
    ]
    if arguments.vararg:
        parameters.append(of_argument(arguments.vararg, None, "*"))
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    parameters += [of_argument(a, d, is_keyword=True) for a, d in keywords]
    if arguments.kwarg:
        parameters.append(of_argument(arguments.kwarg, None, "**"))
    result = ast.unparse(node.returns) if node.returns else "None"
    return Signature(tuple(parameters), shown_type(result))


def of_argument(
    argument: ast.arg, default: ast.expr | None, starred: str = "", *, is_keyword: bool = False
) -> Parameter:
    kind = ast.unparse(argument.annotation) if argument.annotation else "object"
    shown = "" if default is None else ast.unparse(default)
    return Parameter(argument.arg, shown_type(kind), shown, starred, is_keyword)


def of_function(function: object) -> Signature:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    parameters = []
    for name, parameter in signature.parameters.items():
        starred = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        default = "" if parameter.default is parameter.empty else repr(parameter.default)
        default = "..." if "<" in default else default
        kind = shown_annotation(parameter.annotation)
        is_keyword = parameter.kind is parameter.KEYWORD_ONLY
        parameters.append(Parameter(name, kind, default, starred, is_keyword))
    return Signature(tuple(parameters), shown_annotation(signature.return_annotation))


def shown_annotation(annotation: object) -> str:
    if annotation in (inspect.Parameter.empty, object):
        return "object"
    return shown_type(
        annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    )


def head(name: str, signature: Signature) -> str:
    parts: list[str] = []
    for parameter in signature.parameters:
        if parameter.is_keyword and "*" not in parts and not any(p[:1] == "*" for p in parts):
            parts.append("*")
        default = f"={parameter.default}" if parameter.default else ""
        parts.append(f"{parameter.starred}{parameter.name}{default}")
    return f"{name}({', '.join(parts)}) -> {signature.result}"


# ---- sentences ---------------------------------------------------------------------------------


def summary_of(space: str, name: str, function: object) -> str:
    prefix = SPACES[space][1]
    known = SENTENCES.get(prefix + name) or (SENTENCES.get(name) if not prefix else None)
    if known:
        return known
    if name.endswith("_copy"):
        return f"{name.removesuffix('_copy')}, in memory of its own."
    base = name.removesuffix("_")
    written = own_doc(function)
    if not written and base in SENTENCES:
        return f"`{base}`, written into the tensor."
    if written:
        return " ".join(written.partition("\n\n")[0].split())
    if base in ROWS:
        return str(ROWS[base]["doc"])
    raise LookupError(f"{space}.{name} has no sentence: tools/reference/sentences.txt")


def own_doc(function: object) -> str:
    """The docstring of the source, without what this tool has written."""
    code = function
    if isinstance(code, Function):
        code = code.__wrapped__
    if inspect.isfunction(code):
        return inspect.cleandoc(original(code))
    text = inspect.getdoc(code) or ""
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
    """The lines under each heading of a docstring; what stands before any has the name ""."""
    found: dict[str, list[str]] = {"": []}
    name = ""
    for line in text.splitlines():
        if re.fullmatch(r"(Args|Returns|Raises|Example):", line):
            name = line[:-1]
            found[name] = []
        else:
            found[name].append(line)
    return found


def argument_lines(space: str, name: str, signatures: list[Signature], written: str) -> list[str]:
    own: dict[str, str] = {}
    for line in sections(written).get("Args", []):
        if match := re.match(r"    (?:\*+)?(\w+): (.*)", line):
            own[last := match[1]] = match[2]
        elif own and line.strip():
            own[last] += " " + line.strip()
    kinds: dict[str, list[str]] = {}
    for parameter in itertools.chain.from_iterable(s.parameters for s in signatures):
        kinds.setdefault(parameter.name, []).extend(
            kind for kind in parameter.type.split(" | ") if kind != "object"
        )
    lines = []
    for word, accepted in kinds.items():
        phrase = (
            PARAMETERS.get(f"{SPACES[space][1]}{name}.{word}")
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


def family_of(name: str, prefix: str) -> str:
    base = name.removesuffix("_")
    if base in ROWS:
        return str(ROWS[base]["family"])
    letters = {line.split(" ")[0] for line in SCHEMAS if re.match(rf"\w+ {prefix}{base}[.(]", line)}
    return "elementwise" if any("e" in word for word in letters) else ""


SCHEMAS = (ROOT / "gt/aten/schemas.txt").read_text().splitlines()


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
    return " or ".join(results) + "."


# ---- examples ----------------------------------------------------------------------------------

TENSORS = (
    "tensor([1.0, 2.0, 3.0])", "tensor([0.25, 0.5])", "tensor([[2.0, 1.0], [1.0, 3.0]])",
    "tensor([1, 2, 3])", "tensor([True, False])", "tensor([1.0 + 2.0j])", "ones(1, 2, 4)",
    "ones(1, 1, 4, 4)", "ones(1, 1, 4, 4, 4)", "tensor(2.0)", "tensor([[1, 0], [0, 1]])",
)  # fmt: skip
MATRICES = ("tensor([[2.0, 1.0], [1.0, 3.0]])", *TENSORS)
WORDS = {
    "int": ("1", "0", "2"),
    "float": ("0.5", "1.0"),
    "bool": ("True", "False"),
    "number": ("2", "0.5"),
    "str": ("'ij'", "'mean'", "'sum'"),
    "dtype": ("gt.float64",),
}


def candidates(space: str, parameter: Parameter) -> tuple[str, ...]:
    kind = parameter.type
    if "Sequence[Tensor]" in kind or (parameter.starred and "Tensor" in kind):
        return tuple(f"[gt.{a}, gt.{a}]" for a in TENSORS[:6])
    if re.search(r"\bTensor\b", kind):
        order = MATRICES if space == "gt.linalg" else TENSORS
        return tuple(f"gt.{text}" for text in order)
    if "Sequence[int]" in kind:
        return ("(0,)", "(2, 2)", "1", "(1, 2, 4)", "(0, 1)", "(2,)")
    for word, values in WORDS.items():
        if re.search(rf"\b{word}\b", kind):
            return values
    return ("gt.tensor([1.0, 2.0, 3.0])",)


def expressions(space: str, name: str, signatures: list[Signature]) -> Iterator[str]:
    if f"{space}.{name}" in EXAMPLES:
        yield EXAMPLES[f"{space}.{name}"]
        return
    for signature in signatures:
        required = [p for p in signature.parameters if not p.default and p.starred != "**"]
        options = [candidates(space, p) for p in required]
        same = zip(*options, strict=False) if options else [()]
        for chosen in itertools.islice(
            itertools.chain(same, itertools.product(*options)), ATTEMPTS
        ):
            parts = [
                f"{p.name}={text}" if p.is_keyword else text.strip("[]") if p.starred else text
                for p, text in zip(required, chosen, strict=True)
            ]
            yield f"{space}.{name}({', '.join(parts)})"


def evaluated(expression: str) -> str | None:
    """The text of what an expression gives, or None where GT or PyTorch refuses or they differ."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("error")
        try:
            shown = [repr(eval(expression, {"gt": gt})) for _ in range(4)]
            theirs = eval(expression.replace("gt.", "torch."), {"torch": torch})
        except Exception:  # noqa: BLE001 - whatever it is, it is no example
            return None
    if len(set(shown)) > 1:
        return None
    plain = repr(theirs).replace("torch.", "gt.")
    alike = re.sub(r"\s+", "", shown[0]) == re.sub(r"\s+", "", plain)
    return shown[0] if alike and len(shown[0]) < 500 and shown[0] != "None" else None


def example_of(space: str, name: str, signatures: list[Signature]) -> list[str]:
    fixed = EXAMPLES.get(f"{space}.{name}")
    if fixed:
        return of_lines(fixed.split("; "))
    for expression in expressions(space, name, signatures):
        shown = evaluated(expression)
        if shown is not None:
            return [
                f"    >>> {expression}",
                *(f"    {line or BLANK}" for line in shown.splitlines()),
            ]
    for expression in expressions(space, name, signatures):  # random: its shape
        shown = evaluated(f"{expression}.shape")
        if shown is not None:
            return [f"    >>> {expression}.shape", f"    {shown}"]
    raise LookupError(f"{space}.{name} has no example: tools/reference/examples.txt")


def of_lines(statements: list[str]) -> list[str]:
    """Statements, and what the last one gives, as a session of Python shows them."""
    names: dict[str, object] = {"gt": gt}
    lines = []
    for statement in statements:
        lines.append(f"    >>> {statement}")
        try:
            value = eval(statement, names)
        except SyntaxError:
            exec(statement, names)
            continue
        if value is not None:
            lines += [f"    {line or BLANK}" for line in repr(value).splitlines()]
    return lines


# ---- pages -------------------------------------------------------------------------------------


def functions_of(space: str) -> Iterator[tuple[str, object]]:
    module = importlib.import_module(space)
    for name in sorted({*getattr(module, "__all__", ()), *dir(module)}):
        value = getattr(module, name)
        plain = inspect.isfunction(value) or isinstance(value, Function)
        if plain and not name.startswith("_"):
            yield name, value


def entry(space: str, name: str, function: object, known: dict[str, list[Signature]]) -> str:
    signatures = known.get(name) or [of_function(function)]
    written = own_doc(function)
    body = sections(written)
    summary = summary_of(space, name, function)
    family = family_of(name, SPACES[space][1])
    rest = "\n".join(body[""]).partition("\n\n")[2].strip()
    if isinstance(function, Function):
        lines = [summary]
    else:
        lines = [*(head(name, signature) for signature in signatures), "", summary]
    if rest and not SENTENCES.get(SPACES[space][1] + name):
        lines += ["", rest]
    arguments = argument_lines(space, name, signatures, written)
    lines += ["", "Args:", *(arguments or ["    None."])]
    lines += ["", "Returns:", *wrapped(returns_of(name, family, signatures))]
    raised = body.get("Raises") or ([f"    {RAISES[family]}"] if family in RAISES else [])
    if raised:
        lines += ["", "Raises:", *(line for line in raised if line.strip())]
    lines += ["", "Example:", *example_of(space, name, signatures)]
    return "\n".join(lines)


def page(space: str) -> tuple[str, list[str]]:
    known = stub_signatures(SPACES[space][0])
    entries, lacking = [], []
    for name, function in functions_of(space):
        try:
            entries.append(f"\f{name}\n{entry(space, name, function, known)}\n")
        except Exception as error:  # noqa: BLE001, PERF203 - all that fail are told at the end
            lacking.append(f"{space}.{name}: {error}")
    title = f"{space}. Generated by tools/reference.py.\n"
    return title + "".join(entries), lacking


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 where stale")
    check = parser.parse_args().check
    stale = []
    for space in SPACES:
        text, lacking = page(space)
        print(*lacking, sep="\n")
        target = FOLDER / f"{space}.txt"
        if target.read_text() != text:
            stale.append(target.name)
        if not check:
            target.write_text(text)
    if check and stale:
        print(f"stale: run `just reference` to rewrite {', '.join(stale)}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
