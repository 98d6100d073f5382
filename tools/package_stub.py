"""The type stub of `gt`: every name that `import gt` gives, and where it comes from."""

import ast
import itertools
import sys
from collections.abc import Iterator

from python_source import ROOT, Row, Source, table_entries
from stubs import COMPOSITE, HEADER

MODULES = (
    "creation", "random", "session", "serialization", "dtypes", "interop", "settings",
    "tensor_types", "autocast_state",
)  # fmt: skip
FUNCTION_FAMILIES_NOT = ("control", "collective")


def package_stub(rows: list[Row]) -> str:
    """gt/__init__.pyi: every name that `import gt` gives; the first line for a name counts."""
    lines: dict[str, str] = {}
    for name, line in itertools.chain(_imported(), _lazy(), _listed(), function_lines(rows)):
        if not name.startswith("__"):
            lines.setdefault(name, line)
    return "\n".join([f"# {HEADER}", *lines.values()]) + "\n"


def _imported() -> Iterator[tuple[str, str]]:
    """What gt/__init__.py imports from gt, and its second names of dtypes."""
    for node in ast.parse((ROOT / "gt/__init__.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gt":
            for alias in node.names:
                shown = alias.asname or alias.name
                yield shown, f"from {node.module} import {alias.name} as {shown}"
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            for names in zip(node.targets[0].elts, ast.iter_child_nodes(node.value), strict=False):
                shown, name = (ast.unparse(part) for part in names)
                yield shown, f"{shown} = {name}"


def _lazy() -> Iterator[tuple[str, str]]:
    """Subpackages that load at their first use, as far as they exist."""
    for name in ("_kernels", *sorted(ast.literal_eval(Source("gt").values["_LAZY"]))):
        if any((ROOT / f"gt/{name}{end}").exists() for end in (".py", ".pyi", "/__init__.py")):
            yield name, f"from gt import {name} as {name}"
    for name, module in ast.literal_eval(Source("gt").values["_LAZY_NAMES"]).items():
        yield name, f"from gt.{module} import {name} as {name}"


def _listed() -> Iterator[tuple[str, str]]:
    """What the modules of functions list in `__all__`."""
    for module in MODULES:
        source = Source(f"gt.{module}")
        for name in source.words("__all__") if "__all__" in source.values else []:
            yield name, f"from gt.{module} import {name} as {name}"


def _exported(module: str, name: str, shown: str) -> str:
    """A name of `module`, perhaps by another one: an import `as` that would be no export."""
    if name == shown:
        return f"from {module} import {name} as {shown}"
    return f"from {module} import {name}\n{shown} = {name}"


def function_lines(rows: list[Row]) -> list[tuple[str, str]]:
    """Functions of `gt` that are methods too, and those of gt.composite that are not."""
    composite = Source("gt.composite")
    joining = Source("gt.composite.joining").words("__all__")
    lines = {name: f"from gt.composite.joining import {name} as {name}" for name in joining}
    functions = composite.values["FUNCTIONS"]
    assert isinstance(functions, ast.Dict)
    for name, value in table_entries(functions):
        if isinstance(value, ast.Name):
            lines[name] = _exported(composite.origin[value.id], value.id, name)
        elif isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
            owner = value.value.id
            lines[name] = (
                f"{name} = Tensor.{value.attr}"
                if owner == "Tensor"
                else _exported(f"gt.composite.{owner}", value.attr, name)
            )
    lines |= {name: f"{name} = Tensor.{name}" for name in composite.words("IN_PLACE")}
    methods_only = set(composite.words("METHODS_ONLY"))
    for file in COMPOSITE:
        for name, _ in Source(f"gt.composite.{file}").table("METHODS"):
            if name not in methods_only:
                lines.setdefault(name, f"{name} = Tensor.{name}")
    for row in rows:
        if "python" in row and row["family"] not in FUNCTION_FAMILIES_NOT:
            lines.setdefault(row["name"], f"{row['name']} = Tensor.{row['name']}")
    return sorted(lines.items())


if __name__ == "__main__":
    sys.exit("a part of tools/gen.py, which runs it")
