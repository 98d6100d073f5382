"""Python files as text: their functions, their tables, and the origin of their names."""

import ast
import pathlib
import sys
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]  # of ops.toml

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Source:
    """A Python file: its functions, its tables and the origin of its names."""

    def __init__(self, module: str) -> None:
        self.module = name_by_file(module)
        path = ROOT / (self.module.replace(".", "/") + ".py")
        if not path.exists():
            path = ROOT / self.module.replace(".", "/") / "__init__.py"
        self.functions: dict[str, ast.FunctionDef] = {}
        self.values: dict[str, ast.expr] = {}
        self.origin: dict[str, str] = {}
        for node in ast.parse(path.read_text()).body:
            self._enter(node)

    def _enter(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef):
            self.functions[node.name] = node
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                self.origin[alias.asname or alias.name] = node.module
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                self.values[target.id] = node.value
                self.origin[target.id] = self.module
        elif isinstance(node, ast.ClassDef):
            self.origin[node.name] = self.module

    def function(self, name: str) -> "tuple[Source, ast.FunctionDef]":
        """Find a function here or where it is imported from."""
        if name in self.functions:
            return self, self.functions[name]
        value = self.values.get(name)
        if isinstance(value, ast.Name):
            return self.function(value.id)
        return Source(self.origin[name]).function(name)

    def table(self, name: str) -> list[tuple[str, ast.expr]]:
        """The entries of a dictionary of methods."""
        value = self.values[name]
        assert isinstance(value, ast.Dict), name
        return table_entries(value)

    def words(self, name: str) -> list[str]:
        """A tuple, list or set of strings."""
        value = self.values[name]
        if isinstance(value, ast.Call):
            value = value.args[0]
        return [str(word) for word in ast.literal_eval(value)]


def name_by_file(module: str) -> str:
    """The name of a module of GT that follows its file: `gt.compat.mps` for `gt.mps`."""
    first, _, rest = module.partition(".")
    top = rest.partition(".")[0]
    for folder in FOLDERS:
        if any((ROOT / first / folder / f"{top}{end}").exists() for end in (".py", "/__init__.py")):
            return f"{first}.{folder}.{rest}"
    return module


def _folders() -> tuple[str, ...]:
    """The folders whose files are modules directly below `gt`."""
    for node in ast.parse((ROOT / "gt/compat/__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FOLDERS":
            return tuple(ast.literal_eval(node.value))
    raise AssertionError("gt/compat/__init__.py has no FOLDERS")


FOLDERS = _folders()


def table_entries(table: ast.Dict) -> list[tuple[str, ast.expr]]:
    pairs = zip(table.keys, table.values, strict=True)
    return [(str(ast.literal_eval(key)), value) for key, value in pairs if key is not None]


def sentences(function: ast.FunctionDef) -> str:
    """The first paragraph of a function's docstring, in one line."""
    first, _, _ = (ast.get_docstring(function) or "").partition("\n\n")
    return " ".join(first.split())


if __name__ == "__main__":
    sys.exit("a part of tools/gen.py, which runs it")
