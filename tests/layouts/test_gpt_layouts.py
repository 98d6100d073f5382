"""One GPT under every layout: the loss curves are the one worker's.

In float64 on workers of numpy, in float32 on PyTorch's.
`--slow` takes 300 steps and writes the curves into the XML of `--junitxml`, for benchmarks/full.py.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gpt_layouts import LAYOUTS

PROGRAM = Path(__file__).with_name("gpt_layouts.py")
STEPS, STEPS_SLOW = 30, 300
SLOW_SECONDS_MAX = 600
EXACT = ("pipeline2", "pipeline4")  # nothing is summed in another order
TOLERANCE = {"float64": 1e-9, "float32": 1e-5}
BACKEND = {"float64": "numpy", "float32": "pytorch"}
OTHERS = [name for name in LAYOUTS if name != "one"]


@functools.cache
def trained(layout, dtype, steps, folder):
    done = subprocess.run(
        [
            sys.executable, str(PROGRAM), layout, "--dtype", dtype, "--steps", str(steps),
            "--config", str(folder / f"{layout}.yaml"),
        ],
        env=os.environ | {"GT_BACKEND": BACKEND[dtype], "GT_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SLOW_SECONDS_MAX / 2 - 10,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("layouts")


def agree(layout, dtype, steps, folder):
    """The largest relative difference of two losses, which is none or small enough."""
    expected = trained("one", dtype, steps, folder)["losses"]
    assert expected[-1] < 0.9 * expected[0], "it learns"
    losses = trained(layout, dtype, steps, folder)["losses"]
    if layout in EXACT:
        assert losses == expected
    else:
        assert losses == pytest.approx(expected, rel=TOLERANCE[dtype])
    return max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", OTHERS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_every_layout_has_the_losses_of_one_worker(layout, dtype, folder):
    agree(layout, dtype, STEPS, folder)


@pytest.mark.slow
@pytest.mark.timeout(SLOW_SECONDS_MAX)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_over_300_steps(layout, dtype, folder, record_property):
    results = trained(layout, dtype, STEPS_SLOW, folder)
    record_property("losses", json.dumps(results["losses"]))
    record_property("a_step", json.dumps(results["a_step"]))
    record_property("difference", agree(layout, dtype, STEPS_SLOW, folder))
