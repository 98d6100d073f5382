"""Lines of an instruction log: instructions, and the notes after `#`.

The text before `#` is the instruction, which gt._core parses; notes are for people and tools.
"""

import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

OPERATOR = re.compile(r"^(?:(?:%\S+ )+= )?(\w+)")
SIGNAL = re.compile(r' @("(?:[^"\\]|\\.)*"|[^\s"]+)')
TIME = re.compile(r"\b(\d\d):(\d\d):(\d\d(?:\.\d+)?)\b")
SESSION = re.compile(r"\d\d:\d\d:\d\d(?:\.\d+)? s(\d+)\b")
LAYOUT = re.compile(r"\b(?:replicate|partial\(|shard\()\S*@\[[\d,\[\]]+\]")
MOVED = re.compile(r"\bmoved=(\d+)")
FAILURE = re.compile(r"^# ERROR (%\d+) ")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One instruction of a log."""

    instruction: str
    notes: str
    operator: str
    signal: str | None
    """The scope's name, without quotes."""
    seconds: float | None
    """Time of day."""
    workers: tuple[int, ...]
    """Workers in the layout of its first result; empty without results."""
    layouts: tuple[str, ...]
    """The layout of each result: `shard(0)@[0,1]`."""
    moved_bytes: int
    """Bytes transferred between workers for it."""

    @property
    def first(self) -> str:
        """Name of its first result, without the output's number: `%3`."""
        return self.instruction.split(" ", 1)[0].split(".", 1)[0]

    @property
    def number(self) -> int | None:
        """Number of an instruction with results; None for others."""
        return int(self.first[1:]) if self.first.startswith("%") else None

    @property
    def session(self) -> int | None:
        """Session of the instruction, in the log of a dispatcher of several sessions."""
        match = SESSION.search(self.notes)
        return int(match[1]) if match else None

    @property
    def failed(self) -> bool:
        return "ERROR" in self.notes


def entries(file: str) -> list[Entry]:
    """Instructions of a log; one that failed on a worker later is marked as failed."""
    results: list[Entry] = []
    broken: set[str] = set()
    for line in lines(file):
        if failure := FAILURE.match(line):
            broken.add(failure[1])
        elif (parsed := entry(line)) is not None:
            results.append(parsed)
    return [
        replace(parsed, notes=f"{parsed.notes} ERROR") if parsed.first in broken else parsed
        for parsed in results
    ]


def lines(file: str) -> Iterator[str]:
    """The lines of a file, or of standard input for `-`, without their ends."""
    with contextlib.ExitStack() as stack:
        source = sys.stdin
        if file != "-":
            source = stack.enter_context(open(file, encoding="utf-8", errors="replace"))  # noqa: PTH123 - any path
        for line in source:
            yield line.rstrip("\r\n")


def split(line: str) -> tuple[str, str]:
    """The instruction and the notes; a `#` within quotes is text."""
    quoted, escaped = False, False
    for place, letter in enumerate(line):
        if escaped:
            escaped = False
        elif quoted and letter == "\\":
            escaped = True
        elif letter == '"':
            quoted = not quoted
        elif letter == "#" and not quoted:
            return line[:place].rstrip(), line[place + 1 :].strip()
    return line.rstrip(), ""


def entry(line: str) -> Entry | None:
    """The entry of a line; None for an empty line or a comment."""
    instruction, notes = split(line)
    match = OPERATOR.match(instruction)
    if match is None:
        return None
    signal = SIGNAL.search(instruction)
    time = TIME.search(notes)
    layouts = tuple(LAYOUT.findall(notes))
    moved = MOVED.search(notes)
    hours, minutes, seconds = time.groups() if time else ("0", "0", "0")
    return Entry(
        instruction=instruction,
        notes=notes,
        operator=match[1],
        signal=signal[1].strip('"').replace('\\"', '"') if signal else None,
        seconds=int(hours) * 3600 + int(minutes) * 60 + float(seconds) if time else None,
        workers=tuple(int(word) for word in re.findall(r"\d+", layouts[0].rpartition("@")[2]))
        if layouts
        else (),
        layouts=layouts,
        moved_bytes=int(moved[1]) if moved else 0,
    )
