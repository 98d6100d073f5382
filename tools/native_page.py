"""The section of docs/ops.md on the native backend: its rows by module, and their operands.

The rows come from the harness's results.json, the operands from the modules' docstrings. The
modules are parsed and not imported, because importing needs the compiled kernels.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WORKER = Path(__file__).resolve().parent.parent / "gt/worker/native"
QUICK = "Quick: "
HEAD = """
## The native backend

`GT_BACKEND=native` is a worker without PyTorch ([how](decisions/native_backend.md)). {count} of its
rows have a kernel of the native backend, `native` in the column *kernels*: for the operands that
the line of the row's module names. Any other operands, and the {others} rows that have `numpy` and
not `native`, run by the numpy reference: slower, with results that differ in the last digits only.

| module | operands | rows |
| --- | --- | --- |
"""


def section(facts: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of the section.

    Args:
        facts: by row: `native`, the module that has its kernel, and whether it has a `reference`.
    """
    rows: dict[str, list[str]] = {}
    for row, fact in facts.items():
        if fact["native"]:
            rows.setdefault(fact["native"], []).append(f"`{row}`")
    count = sum(map(len, rows.values()))
    others = sum(bool(fact["reference"]) and not fact["native"] for fact in facts.values())
    lines = [
        f"| `gt/worker/native/{module}.py` | {operands(module)} | {', '.join(names)} |\n"
        for module, names in rows.items()
    ]
    return HEAD.format(count=count, others=others) + "".join(lines)


def operands(module: str) -> str:
    """The paragraph of a module's docstring on the operands for which its rows are fast."""
    tree = ast.parse((WORKER / f"{module}.py").read_text(encoding="utf-8"))
    paragraphs = (ast.get_docstring(tree) or "").split("\n\n")
    (text,) = (one for one in paragraphs if one.startswith(QUICK))
    return " ".join(text.removeprefix(QUICK).split())
