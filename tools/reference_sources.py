"""Sources of tools/reference.py: signatures of the type stubs, the table, phrases written by hand.

It loads `gt` without the texts of an earlier run, so it must be imported before any other module
loads `gt`.
"""

import ast
import dataclasses
import inspect
import re
import sys
import tomllib
import types

from python_source import ROOT, Row

# Docstrings must be those of the sources: the texts of an earlier run are not attached.
bare = types.ModuleType("gt.documentation")
bare.__dict__.update(attach=lambda *_: None, text=lambda *_: None)
sys.modules[bare.__name__] = bare


SPACES = {
    "gt": ("gt/__init__.pyi", ""),
    "gt.linalg": ("gt/compat/linalg.pyi", "linalg_"),
    "gt.fft": ("gt/compat/fft.pyi", "fft_"),
    "gt.special": ("gt/compat/special.pyi", "special_"),
    "gt.nn.functional": ("gt/nn/functional/from_schemas.pyi", ""),
}
SCHEMAS = (ROOT / "gt/tensors/aten/schemas.txt").read_text().splitlines()


def phrases(file: str) -> dict[str, str]:
    lines = (ROOT / "tools/reference" / file).read_text().splitlines()
    pairs = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {name: phrase for name, _, phrase in pairs}


SENTENCES, PARAMETERS, EXAMPLES, SHAPES = map(
    phrases, ("sentences.txt", "parameters.txt", "examples.txt", "shapes.txt")
)
ROWS: dict[str, Row] = {
    row["name"]: row for row in tomllib.loads((ROOT / "ops.toml").read_text())["op"]
}


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


def shown_type(text: str) -> str:
    """A type of the stubs in the words for readers."""
    text = re.sub(r"\b_(bool|int|float|dtype|type)\b", r"\1", text)
    text = text.replace("builtins.", "").replace("_DtypeArg", "dtype").replace("_Number", "number")
    text = re.sub(r"\b(Operand)\b", "Tensor | number", text)
    text = re.sub(r"\b(_?Number|_?Real)\b", "number", text)
    text = text.replace("OptionalSizes", "int | None | Sequence[int | None]")
    text = re.sub(r"\b(_Dims|Dims|Shape|Sizes)\b", "int | Sequence[int]", text)
    return re.sub(r"~|\b(?:gt\.|collections\.abc\.|typing\.|_core\.)", "", text)


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
