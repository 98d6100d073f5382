"""The CUDA kernels' own tests, on a CPU: csrc/emulator is built and run (`just emulator`)."""

import subprocess

import pytest
from emulator_build import CMAKE, build


@pytest.mark.timeout(600)
@pytest.mark.skipif(CMAKE is None, reason="cmake is not installed")
def test_kernels_under_the_emulator():
    """Builds what changed since the last time; the report of a failed test is in the output."""
    command = [str(build("emulator_tests") / "emulator_tests")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, (command, run.stdout[-4000:], run.stderr[-4000:])
    assert "0 of" in run.stdout, run.stdout
    assert "FAILED" not in run.stdout, run.stdout
