"""A Python that has everything but PyTorch."""

from __future__ import annotations

import os
from pathlib import Path

# Hides PyTorch as if never installed: not found, instead of found and broken.
HIDDEN = """\
from importlib.machinery import PathFinder

find = PathFinder.find_spec


def find_others(name, *arguments):
    return None if name.partition(".")[0] == "torch" else find(name, *arguments)


PathFinder.find_spec = find_others
"""


def path_without_torch(folder: Path) -> str:
    """A PYTHONPATH on which no process finds torch; writes a file to the folder."""
    (folder / "sitecustomize.py").write_text(HIDDEN, encoding="ascii")
    root = Path(__file__).resolve().parent.parent.parent
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", ""), str(root)])
