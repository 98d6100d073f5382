"""Files in shared memory: who has left some behind."""

import contextlib
import os
import time
from pathlib import Path

FOLDER = Path("/dev/shm")
LEAVE_SECONDS = 10.0  # what is being made or removed at this moment is gone or mapped by then
DRIVERS = (
    "cuda.shm."  # files of CUDA's driver, which outlive the processes that share memory by them
)


def names() -> set[str]:
    """This user's files."""
    uid = os.getuid()
    return {
        f"{FOLDER}/{entry.name}"
        for entry in os.scandir(FOLDER)
        if not entry.name.startswith(DRIVERS) and entry.stat(follow_symlinks=False).st_uid == uid
    }


def mapped_by(process: Path) -> set[str]:
    """Files in FOLDER that a process, given by its folder in /proc, has mapped."""
    maps = (process / "maps").read_text(errors="replace").splitlines()
    return {line[line.index("/") :] for line in maps if f" {FOLDER}/" in line}


def left_since(before: set[str]) -> set[str]:
    """Files that are new and that no living process has mapped: other tests run beside this one."""
    deadline = time.monotonic() + LEAVE_SECONDS
    while (left := names() - before - _mapped()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _mapped() -> set[str]:
    used: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            used |= mapped_by(process)
    return used
