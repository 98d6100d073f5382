"""Builds a target of csrc/emulator once more, what changed; one build at a time."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "target" / "emulator"


def build(target: str) -> Path:
    """The folder with the built target; AssertionError with the compiler's messages."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            ["cmake", "-S", str(ROOT / "csrc" / "emulator"), "-B", str(BUILD), "-G", "Ninja"],
            ["cmake", "--build", str(BUILD), "--parallel", "2", "--target", target],
        ):
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            assert run.returncode == 0, (command, run.stdout[-4000:], run.stderr[-4000:])
    return BUILD
