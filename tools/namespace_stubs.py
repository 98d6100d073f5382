"""The type stubs of gt.linalg, gt.fft, gt.special and gt.return_types.

Their functions are created from PyTorch's schemas at import, so type checkers cannot see them in
the modules themselves.
"""

import ast
import sys

import schema_types
from python_source import Source
from stubs import HEADER, documented

_IMPORTS = """\
from collections.abc import Sequence
from typing import overload
from gt.compat import return_types
from gt._core import Tensor
from gt._core import _bool, _dtype, _float, _int, _Number
"""


def namespace_stubs() -> dict[str, str]:
    """Path and text of each stub."""
    return {
        "gt/compat/linalg.pyi": _namespace("linalg", "l", "linalg_"),
        "gt/compat/fft.pyi": _namespace("fft", "f", "fft_"),
        "gt/compat/special.pyi": _namespace("special", "s", "special_", _special()),
        "gt/nn/functional/from_schemas.pyi": _functional(),
        "gt/compat/return_types.pyi": _return_types(),
    }


def _namespace(module: str, letter: str, prefix: str, more: list[str] | None = None) -> str:
    source = Source(f"gt.{module}")
    lines = [f"# {HEADER}", *_IMPORTS.splitlines(), *(more or [])]
    docs = {}
    taken = {line.rpartition(" as ")[2].partition(" = ")[0] for line in more or []}
    for name in schema_types.names(letter):
        title = name.removeprefix(prefix)
        if title in taken:
            continue
        lines += schema_types.lines(title, schema_types.signatures(name, "input"))
    for name, function in source.functions.items():
        if not name.startswith("_"):
            lines.append(_own(name, function))
            docs[name] = ast.get_docstring(function) or ""
    if module == "linalg":
        lines.append("from gt.errors import LinAlgError as LinAlgError")
    return documented("\n".join(lines), docs)


def _functional() -> str:
    """Functions of gt.nn.functional by PyTorch's schemas alone, as a stub file."""
    taken = {*Source("gt.nn.functional").origin}
    lines = [f"# {HEADER}", *_IMPORTS.splitlines()]
    for name in schema_types.names("n"):
        if name not in taken:
            lines += schema_types.lines(name, schema_types.signatures(name, "input"))
    return "\n".join(lines) + "\n"


def _own(name: str, function: ast.FunctionDef) -> str:
    """A function that the module defines itself, with the type names of schemas."""
    hidden = {"bool": "_bool", "int": "_int", "float": "_float", "dtype": "_dtype"}

    class Rename(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.Name(hidden.get(node.id, node.id), ast.Load())

    for argument in (*function.args.args, *function.args.kwonlyargs):
        if argument.annotation is not None:
            argument.annotation = Rename().visit(argument.annotation)
    assert function.returns is not None, name
    return f"def {name}({ast.unparse(function.args)}) -> {ast.unparse(function.returns)}: ..."


def _special() -> list[str]:
    """Functions that gt.special takes from `gt`, some of them renamed."""
    values = Source("gt.special").values
    lines = [f"from gt import {name} as {name}" for name in ast.literal_eval(values["_SAME"])]
    for title, name in ast.literal_eval(values["_OTHER_NAMES"]).items():
        lines += [f"from gt import {name} as _{name}", f"{title} = _{name}"]
    return lines


def _return_types() -> str:
    source = Source("gt.return_types")
    pair = ast.literal_eval(source.values["_VALUES"])
    declared = source.values["FIELDS"]
    assert isinstance(declared, ast.Dict)
    fields = {
        str(ast.literal_eval(key)): pair if isinstance(value, ast.Name) else ast.literal_eval(value)
        for key, value in zip(declared.keys, declared.values, strict=True)
        if key is not None
    }
    lines = [
        f"# {HEADER}",
        "from collections.abc import Iterable",
        "from typing import ClassVar",
        "from typing_extensions import Self",
        "from gt._core import Tensor",
        "FIELDS: dict[str, tuple[str, ...]]",
        "class Results(tuple[Tensor, ...]):",
        '    """Several results of one operator, by their places and by their names."""',
        "    n_fields: ClassVar[int]",
        "    n_sequence_fields: ClassVar[int]",
        "    n_unnamed_fields: ClassVar[int]",
        "    def __new__(cls, sequence: Iterable[Tensor], dict: object = None) -> Self: ...",
        *_class("ValuesIndices", pair),
        "def of(name: str, fields: tuple[str, ...]) -> type[Results]: ...",
        "def values_indices(name: str, results: Iterable[Tensor]) -> ValuesIndices: ...",
    ]
    for name, words in fields.items():
        if words == pair:
            lines.append(f"class {name}(ValuesIndices): ...")
        else:
            lines += _class(name, words)
    return "\n".join(lines) + "\n"


def _class(name: str, fields: tuple[str, ...]) -> list[str]:
    """A tuple of tensors with named fields."""
    tensors = ", ".join("Tensor" for _ in fields)
    lines = [f"class {name}(tuple[{tensors}]):"]
    if name != "ValuesIndices":
        lines.append(f'    """{", ".join(f"`{field}`" for field in fields)}."""')
    lines.append("    n_fields: ClassVar[int]")
    lines.append(
        "    def __new__(cls, sequence: Iterable[Tensor], dict: object = None) -> Self: ..."
    )
    for field in fields:
        lines += ["    @property", f"    def {field}(self) -> Tensor: ..."]
    return lines


if __name__ == "__main__":
    sys.exit("a part of tools/gen.py, which runs it")
