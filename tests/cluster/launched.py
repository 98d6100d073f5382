"""`gt launch` as processes, and who belongs to one; for the tests of launchers."""

import os
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

SUM = """
import gt
print(gt.distribute(gt.ones(8, 4), dim=0).sum().item(), gt.debug.stats()["workers"])
"""
SUM_WORDS = (sys.executable, "-c", SUM)
NUMPY = {"GT_BACKEND": "numpy"}


def gt(*words, **settings):
    """`gt` in a process of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "gt", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=50,
        env=os.environ | NUMPY | settings,
    )


@contextmanager
def launched(*words, **settings):
    """`gt launch` at work, with pipes; it is killed if it is still there at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gt", "launch", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | NUMPY | settings,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def of_launch(pid):
    """Numbers of the living processes that descend from one, in sessions of their own too."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family - {pid}


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
