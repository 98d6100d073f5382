"""Paths of the shared libraries that this process has loaded."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence


def library(names: Sequence[str]) -> str | None:
    """The file of the first loaded library with one of these names, such as `libgomp`; None without
    one.
    """
    for line in pathlib.Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.split(maxsplit=5)[5:]
        if path and pathlib.Path(path[0]).name.split(".")[0].split("-")[0] in names:
            return path[0]
    return None
