"""One GPT under every layout: the loss curves are the one worker's."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpt_layouts import LAYOUTS

PROGRAM = Path(__file__).with_name("gpt_layouts.py")
STEPS = 30  # --slow: 300
EXACT = ("pipeline2", "pipeline4")  # nothing is summed in another order


@functools.cache
def losses(layout, dtype, steps, folder):
    done = subprocess.run(
        [
            sys.executable, str(PROGRAM), layout, "--dtype", dtype, "--steps", str(steps),
            "--config", str(folder / f"{layout}.yaml"),
        ],
        env=os.environ | {"GT_BACKEND": "numpy", "GT_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=290,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["losses"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("layouts")


def agree(layout, dtype, steps, folder, tolerance):
    expected = losses("one", dtype, steps, folder)
    assert expected[-1] < 0.9 * expected[0], "it learns"
    found = losses(layout, dtype, steps, folder)
    if layout in EXACT:
        assert found == expected
    else:
        assert found == pytest.approx(expected, rel=tolerance)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "one"])
def test_every_layout_has_the_losses_of_one_worker(layout, folder):
    agree(layout, "float64", STEPS, folder, 1e-9)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", ["tp3", "fsdp2"])
def test_in_single_precision_too(layout, folder):
    agree(layout, "float32", STEPS, folder, 1e-5)
