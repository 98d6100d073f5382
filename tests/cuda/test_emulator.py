"""The CUDA kernels' own tests, on a CPU: csrc/emulator is built and run (`just emulator`).

Where `just emulated` has recorded that they pass with these sources and this compiler, they need
not run again (tools/judged.py).
"""

import subprocess
import sys

import pytest
from emulator_build import CMAKE, ROOT, build

sys.path.insert(0, str(ROOT / "tools"))
import judged


def passed_before() -> bool:
    """True if the record says so; False where there is none, or no git to list the sources."""
    try:
        return judged.is_judged("emulated")
    except (OSError, subprocess.CalledProcessError):
        return False


@pytest.mark.timeout(600)
@pytest.mark.skipif(CMAKE is None, reason="cmake is not installed")
@pytest.mark.skipif(passed_before(), reason="passed with these inputs before")
def test_kernels_under_the_emulator():
    """Builds what changed since the last time; the report of a failed test is in the output."""
    command = [str(build("emulator_tests") / "emulator_tests")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, (command, run.stdout[-4000:], run.stderr[-4000:])
    assert "0 of" in run.stdout, run.stdout
    assert "FAILED" not in run.stdout, run.stdout
