"""`gt trace`: an instruction log, aligned for reading, or checked line by line."""

import re
import sys
from collections import Counter

from gt import _core
from gt.tools import log

INSTRUCTION_WIDTH = 56  # most instructions fit; longer ones push their notes to the right
COMPLAINTS_MAX = 20
VALUE = re.compile(r"%(\d+(?:\.\d+)?)")


def show(file: str, *, long: bool = False) -> int:
    """Print a log with its notes in a column.

    Args:
        file: a path, or `-`.
        long: write `TENSOR[3] := ADD TENSOR[0] TENSOR[2]`.
    """
    for line in log.lines(file):
        instruction, notes = log.split(line)
        if long:
            instruction = _long(instruction)
        print(f"{instruction:<{INSTRUCTION_WIDTH}} # {notes}" if notes else instruction)
    return 0


def check(file: str) -> int:
    """Parse every line, and print the number of instructions by operator.

    Returns:
        1 if a line is no instruction, or prints differently after parsing.
    """
    counts: Counter[str] = Counter()
    comments, wrong = 0, 0
    for number, line in enumerate(log.lines(file), 1):
        try:
            parsed = _core.parse_trace_line(line)
        except ValueError as error:
            complaint: str | None = str(error)
        else:
            if parsed is None:
                comments += 1
                continue
            operator, again = parsed
            counts[operator] += 1
            written, _ = log.split(line)
            same = written in (again, _long(again))
            complaint = None if same else f"reads back as {again!r}"
        if complaint is not None:
            wrong += 1
            if wrong <= COMPLAINTS_MAX:
                print(f"{file}:{number}: {complaint}\n    {line}", file=sys.stderr)
    for operator, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        print(f"{count:8} {operator}")
    print(f"{counts.total():8} instructions, {comments} comments, {wrong} lines wrong")
    return 1 if wrong else 0


def _long(instruction: str) -> str:
    """The instruction in the notation of the first GT; the parser reads this form too."""
    results, equals, call = (
        instruction.rpartition(" = ") if " = " in instruction else ("", "", instruction)
    )
    operator, space, rest = call.partition(" ")
    head = f"{results} := " if equals else ""
    return VALUE.sub(r"TENSOR[\1]", f"{head}{operator.upper()}{space}{rest}")
