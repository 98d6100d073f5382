"""Rows on the planner alone: one product of matrices that are sharded over two workers.

They run the dispatcher's own benchmark, which needs cargo; its first round builds it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pairs import Round, Row, Sides, Target

ROOT = Path(__file__).resolve().parent.parent
BENCH = ["cargo", "bench", "--quiet", "--package", "gt-dispatcher", "--bench", "plan", "--"]
OPTIONS = ["--output-format=bencher", "--warm-up-time=0.5", "--measurement-time=1"]


def microseconds(printed: str, case: str) -> float:
    """Microseconds in a line `test CASE ... bench:  1,234 ns/iter (+/- 5)`."""
    found = re.search(
        rf"^test {re.escape(case)} \.\.\. bench: +([\d,]+) ns/iter", printed, re.MULTILINE
    )
    if found is None:
        raise ValueError(f"nothing about {case} in {printed!r}")
    return int(found[1].replace(",", "")) / 1e3


def _planned(case: str) -> Round:
    def run() -> float:
        command = [*BENCH, *OPTIONS, f"^{case}$"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        return microseconds(done.stdout, case)

    return run


@contextmanager
def _plans(case: str) -> Iterator[Sides]:
    yield Sides(_planned(case), _planned("plan/alone/fast"))


ROWS = [
    Row(
        "plan-hit",
        "plan of a product cut over 2 workers, planned before",
        "µs",
        Target("figure", 0.5),
        lambda: _plans("plan/hit/one"),
        rounds=5,
        other="one worker",
    ),
    Row(
        "plan-miss",
        "the same for the first time",
        "µs",
        Target("figure", 2),
        lambda: _plans("plan/miss/one"),
        rounds=5,
        other="one worker",
    ),
]
