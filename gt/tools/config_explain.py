"""`gt config explain`: a script runs under a file of layouts; what it meant for each signal."""

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gt import config
from gt.config import document
from gt.tools import log

LAYOUTS_SHOWN = 4  # layouts per signal; the rest are counted
OUTSIDE = "(no signal)"


@dataclass
class Row:
    """Totals over the instructions of one signal."""

    instructions: int = 0
    moved_bytes: int = 0
    layouts: Counter[str] = field(default_factory=Counter)


def run(file: str, script: str, arguments: Sequence[str]) -> int:
    """Run the script, then print a table with a line for each signal.

    Names that the program never entered, and rules that matched no parameter, follow the table.

    Args:
        file: YAML file, in place of the one in GT_CONFIG.
        script: path of a Python program, run with `arguments`.

    Returns:
        The program's exit code.

    Raises:
        ConfigError: the file is invalid; nothing has run.
        ValueError: the program does not exist.
    """
    document_read = document.load(file)
    if not Path(script).is_file():
        raise ValueError(f"{script}: there is no such program")
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.txt"
        rule_log = Path(folder) / "rules.txt"
        settings = {
            "GT_CONFIG": file,
            "GT_INSTRUCTION_LOG": str(trace),
            "GT_RULE_LOG": str(rule_log),
        }
        done = subprocess.run(
            [sys.executable, script, *arguments],
            env=config.with_settings(**settings),
            check=False,
        )
        entries = log.entries(str(trace)) if trace.exists() else []
        meant = rule_log.read_text(encoding="utf-8").splitlines() if rule_log.exists() else []
    rows = by_signal(entries)
    for line in table(rows):
        print(line)
    absent = [name for name in document_read.entries if name not in rows]
    if absent:
        print(f"of {file} the program never entered: {', '.join(absent)}")
    idle = [
        f"{rule.pattern} (line {rule.line})"
        for rule in document_read.rules
        if rule.place not in meant
    ]
    if idle:
        print(f"of {file} no parameter of a called module matches: {', '.join(idle)}")
    return done.returncode


def by_signal(entries: Sequence[log.Entry]) -> dict[str, Row]:
    """Rows of the signals, in the order in which the program entered them."""
    rows: dict[str, Row] = {}
    for entry in entries:
        if not entry.layouts and not entry.moved_bytes:
            continue  # an instruction without a result: a name, a read, a free
        row = rows.setdefault(entry.signal or OUTSIDE, Row())
        row.instructions += 1
        row.moved_bytes += entry.moved_bytes
        row.layouts.update(entry.layouts)
    return rows


def table(rows: dict[str, Row]) -> list[str]:
    """Lines in columns: signal, instructions, bytes moved, number of results by layout."""
    width = max([len("signal"), *map(len, rows)])
    lines = [f"{'signal':{width}} {'instructions':>12} {'bytes moved':>14}  layouts of results"]
    for name, row in rows.items():
        shown = [f"{layout} {count}" for layout, count in row.layouts.most_common(LAYOUTS_SHOWN)]
        more = len(row.layouts) - LAYOUTS_SHOWN
        shown += [f"{more} others"] if more > 0 else []
        lines.append(
            f"{name:{width}} {row.instructions:12} {row.moved_bytes:14,}  {', '.join(shown)}"
        )
    total = sum(row.moved_bytes for row in rows.values())
    count = sum(row.instructions for row in rows.values())
    return [*lines, f"{'all':{width}} {count:12} {total:14,}"]
