"""Tables of RESULTS.md: each is between marks of its own, under a line with day and machine."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from pairs import load, machine

RESULTS = Path(__file__).with_name("RESULTS.md")


def note(command: str, before: str, hardware: str = "") -> str:
    """The line above a table: day, command, machine and load.

    Args:
        command: as typed in benchmarks/.
        before: the load average when the measurement began.
        hardware: facts that machine() does not know, such as the GPUs.
    """
    day = dt.datetime.now(tz=dt.timezone.utc).date()
    facts = ", ".join(filter(None, [str(day), f"`cd benchmarks && {command}`", hardware]))
    return f"{facts}. {machine()}.\nLoad average {before} before and {load()} after."


def write(
    lines: Sequence[Sequence[str]],
    said: str,
    head: Sequence[str],
    marks: tuple[str, str],
    align: Sequence[str] = (),
) -> None:
    """Replaces the table between two marks of RESULTS.md.

    Args:
        lines: the cells of each row.
        said: the line above the table.
        head: the names of the columns.
        marks: of the beginning and the end.
        align: `---` or `---:` of each column; the first to the left and all others to the right
            if not given.
    """
    begin, end = marks
    table = [head, align or ["---"] + ["---:"] * (len(head) - 1), *lines]
    text = "\n".join([said, "", *("| " + " | ".join(line) + " |" for line in table)])
    old = RESULTS.read_text(encoding="utf-8")
    before, rest = old.split(begin, 1)
    after = rest.split(end, 1)[1]
    RESULTS.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
