"""Lines of rows.txt: rows as calls of ATen's operators. They are parsed, never evaluated."""

from __future__ import annotations

import ast
import dataclasses
import functools
import pathlib
import re

_FILE = pathlib.Path(__file__).with_name("rows.txt")
_HEAD = re.compile(
    r"(?P<rows>[a-z_0-9 ]+)\((?P<parameters>[^)]*)\)"
    r"(?: over (?P<over>[a-z_, ]+?))?(?: when (?P<when>.+?))?:(?P<body>.*)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One implementation of a row."""

    row: str
    # Names of the operands, then of the attributes.
    parameters: tuple[str, ...]
    # Name of the operand that is a list; None without one.
    listed: str | None
    # Names of attributes whose numbers are read at each run.
    changing: frozenset[str]
    over: int
    condition: ast.expr | None
    calls: tuple[ast.stmt, ...]
    result: ast.expr


def _line(row: str, head: re.Match[str], body: str) -> Line:
    words = [word.strip() for word in head["parameters"].split(",") if word.strip()]
    parameters = tuple(word.rstrip("*[]") for word in words)
    over = [name.strip() for name in (head["over"] or "").split(",") if name.strip()]
    *calls, last = ast.parse(body.replace("@", row)).body
    if not isinstance(last, ast.Expr):
        raise TypeError(f"{row}: the last line is no result: {body}")
    when = head["when"]
    return Line(
        row=row,
        parameters=parameters,
        listed=next((word[:-2] for word in words if word.endswith("[]")), None),
        changing=frozenset(word[:-1] for word in words if word.endswith("*")),
        over=sum(1 << parameters.index(name) for name in over),
        condition=ast.parse(when, mode="eval").body if when else None,
        calls=tuple(calls),
        result=last.value,
    )


@functools.cache
def lines() -> dict[str, list[Line]]:
    """The lines of rows.txt by row, in the file's order."""
    lines_by_row: dict[str, list[Line]] = {}
    text = [line for line in _FILE.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    for block in re.split(r"\n(?=\S)", "\n".join(line for line in text if line.strip())):
        first, _, rest = block.partition("\n")
        head = _HEAD.fullmatch(first)
        if head is None:
            raise ValueError(f"rows.txt: {first}")
        body = head["body"].strip() or "\n".join(line.strip() for line in rest.splitlines())
        for row in head["rows"].split():
            lines_by_row.setdefault(row, []).append(_line(row, head, body))
    return lines_by_row
