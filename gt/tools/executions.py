"""Times at which workers executed instructions: the records beside an instruction log."""

import glob
import re
from typing import NamedTuple

NAME = re.compile(r"\.worker(\d+)$")
LINE = re.compile(r"s(\d+) %(\d+) (\w+) (\d+\.\d) (\d+\.\d)\n")


class Execution(NamedTuple):
    """An instruction as a worker executed it; times in milliseconds of the day."""

    worker: int
    session: int
    number: int
    """Modulo 2**32."""
    operator: str
    start: float
    end: float


def executions(log: str) -> list[Execution]:
    """The executions that the workers of an instruction log have recorded, each worker's in order.

    Args:
        log: path of the log; worker 3's record has the suffix `.worker3`.
    """
    records = []
    for path in sorted(glob.glob(f"{glob.escape(log)}.worker*")):  # noqa: PTH207 - any path
        if match := NAME.search(path):
            with open(path, encoding="utf-8") as lines:  # noqa: PTH123 - any path
                parts = filter(None, map(LINE.fullmatch, lines))
                records += [_execution(int(match[1]), *part.groups()) for part in parts]
    return records


def _execution(
    worker: int, session: str, number: str, operator: str, start: str, took: str
) -> Execution:
    begin = float(start) / 1e3
    return Execution(worker, int(session), int(number), operator, begin, begin + float(took) / 1e3)
