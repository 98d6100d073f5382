"""Bytes of the client's memory a live value: `python held.py gt|torch COUNT` prints them.

It runs in a process of its own, because memory that was used once stays with a process. The Python
object and its entry in a list do not count.
"""

from __future__ import annotations

import importlib
import resource
import sys
from pathlib import Path


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * resource.getpagesize()


def main(library: str, count: int) -> None:
    lib = importlib.import_module(library)
    x = lib.ones(())
    (x + x).item()  # allocates everything that is allocated once
    held: list[object] = [x] * count
    before = _resident_bytes()
    for place in range(count):
        held[place] = x + x
    grown = _resident_bytes() - before
    print(grown / count - sys.getsizeof(held[0]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
