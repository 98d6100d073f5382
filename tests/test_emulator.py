"""The CUDA kernels' own tests, on a CPU: csrc/emulator is built and run (`just emulator`)."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "target" / "emulator"


@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_kernels_under_the_emulator():
    """Builds what changed since the last time; the report of a failed test is in the output."""
    for command in (
        ["cmake", "-S", str(ROOT / "csrc" / "emulator"), "-B", str(BUILD), "-G", "Ninja"],
        ["cmake", "--build", str(BUILD), "--parallel", "2"],
        [str(BUILD / "emulator_tests")],
    ):
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, (command, run.stdout[-4000:], run.stderr[-4000:])
    assert "0 of" in run.stdout, run.stdout
    assert "FAILED" not in run.stdout, run.stdout
