"""Each program of benchmarks/kernels runs every case once; times are not checked."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent / "kernels"
PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "beside_torch.py")
SECONDS_MAX = 120


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("program", PROGRAMS)
def test_program_prints_its_cases(program: str) -> None:
    command = [sys.executable, program, "--cpu-time", "--rounds", "1"]
    done = subprocess.run(
        command, cwd=FOLDER, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "x as fast" in done.stdout
