"""Builds a target of csrc/emulator once more, what changed; one build at a time.

cmake and ninja may be those that pip installs beside Python, whether or not that is on the path.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "target" / "emulator"
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
CMAKE = shutil.which("cmake", path=PATH)


def build(target: str) -> Path:
    """The folder with the built target; AssertionError with the compiler's messages."""
    assert CMAKE is not None
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            [CMAKE, "-S", str(ROOT / "csrc" / "emulator"), "-B", str(BUILD), "-G", "Ninja"],
            [CMAKE, "--build", str(BUILD), "--parallel", "2", "--target", target],
        ):
            environment = os.environ | {"PATH": PATH}
            run = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            assert run.returncode == 0, (command, run.stdout[-4000:], run.stderr[-4000:])
    return BUILD
