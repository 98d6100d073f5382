"""Writes stubs for type checkers, which do not follow `gt.__path__`: FOLDER/mps.pyi for gt/compat.

The build of a wheel runs this (crates/python/build.rs); the files are not committed. Without them
checkers know `gt.mps` after `import gt`, and find no module in `import gt.mps`.
"""

import ast
import pathlib
import sys

GT = pathlib.Path(__file__).resolve().parent.parent / "gt"
ALWAYS = ("random",)  # `import gt` loads it


def stubs() -> dict[str, str]:
    """Name and text of each stub: one for each public module in gt/compat."""
    lazy: tuple[str, ...] = ()
    for node in ast.parse((GT / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_LAZY":
            lazy = tuple(ast.literal_eval(node.value))
    names = {file.name.partition(".")[0] for file in (GT / "compat").iterdir()}
    public = [name for name in names & {*lazy, *ALWAYS} if not name.startswith("_")]
    return {f"{name}.pyi": stub(name) for name in sorted(public)}


def stub(name: str) -> str:
    """Text of a stub: the module's names, with those that it takes from another module to show, and
    the modules below it that it loads.
    """
    file = GT / f"compat/{name}.py"
    source = file if file.exists() else GT / f"compat/{name}/__init__.py"
    lines = [f"from gt.compat.{name} import *\n"]
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        package, _, below = (node.module or "").rpartition(".")
        if package == f"gt.compat.{name}":
            lines.append(f"from {package} import {below} as {below}\n")
        for alias in node.names:
            if alias.name == "*":
                lines.append(f"from {node.module} import *\n")
            elif alias.asname == alias.name:
                lines.append(f"from {node.module} import {alias.name} as {alias.name}\n")
    return "".join(reversed(lines))  # the module's own names come last, and count


def write(folder: pathlib.Path) -> None:
    """Write the stubs that differ from what the folder has."""
    for name, text in stubs().items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
