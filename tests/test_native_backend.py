"""A worker of GT's own kernels, where PyTorch cannot be imported: the same losses."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gt
from gt import errors
from gt.demo import digits

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "tests" / "harness" / "small_programs.py"
TOLERANCE = 1e-5


@pytest.fixture
def without_torch(tmp_path):
    """A path on which no process can import torch."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None")
    return os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", ""), str(ROOT)])


def _losses(**settings):
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)])
    done = subprocess.run(
        [sys.executable, PROGRAM],
        capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": path} | settings,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def wanted():
    return _losses(GT_BACKEND="pytorch", GT_WORKERS="1")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_losses_are_those_of_pytorch(without_torch, wanted, workers):
    settings = {"GT_WORKERS": workers, "PYTHONPATH": without_torch}
    found = _losses(GT_BACKEND="native", GT_AUTO_SHARD="1", **settings)
    assert wanted.keys() == found.keys()
    for name, losses in wanted.items():
        assert found[name] == pytest.approx(losses, rel=TOLERANCE, abs=TOLERANCE), name
        assert losses[-1] < losses[0]


def test_what_needs_torch_says_so(monkeypatch):
    monkeypatch.setenv("GT_BACKEND", "native")
    gt.disconnect()
    try:
        with pytest.raises(errors.NotSupported, match=r"linalg_svd.*needs a worker with torch"):
            gt.linalg.svd(gt.eye(3))
        with pytest.raises(errors.NotSupported, match="float64 needs a worker with torch"):
            gt.nn.functional.conv2d(gt.ones(1, 1, 4, 4).double(), gt.ones(1, 1, 2, 2).double())
        with pytest.raises(errors.ShapeError, match="do not fit into an image"):
            gt.nn.functional.max_pool2d(gt.ones(1, 1, 4, 4), 7)
    finally:
        gt.disconnect()


def test_digits_reach_97_percent_without_torch(without_torch, tmp_path):
    # scikit-learn has the scans and stumbles over a torch that is not there: they are read here
    parts = dataclasses.astuple(digits.load(0))
    np.savez(tmp_path / "scans.npz", *parts)
    code = (
        "import sys, numpy\n"
        "from gt.demo import digits\n"
        "parts = numpy.load(sys.argv[1])\n"
        "scans = digits.Digits(*(parts[name] for name in parts.files))\n"
        "print(digits.train(scans, seed=0, show_progress=False).accuracy)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "scans.npz"],
        capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": without_torch, "GT_BACKEND": "native", "GT_WORKERS": "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) >= 0.97
