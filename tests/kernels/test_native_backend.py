"""A worker of GT's own kernels, where PyTorch cannot be imported: the same losses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from without_torch import path_without_torch

import gt
from gt import errors

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "tests" / "operators" / "harness" / "small_programs.py"
TOLERANCE = 1e-5


@pytest.fixture
def without_torch(tmp_path):
    return path_without_torch(tmp_path)


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
    # Each line reads its result: a client may know the shapes from another worker already.
    monkeypatch.setenv("GT_BACKEND", "native")
    gt.disconnect()
    try:
        with pytest.raises(errors.NotSupported, match=r"linalg_svd.*needs a worker with torch"):
            gt.linalg.svd(gt.eye(3))[1].tolist()
        with pytest.raises(errors.NotSupported, match="float64 needs a worker with torch"):
            gt.nn.functional.conv2d(
                gt.ones(1, 1, 4, 4).double(), gt.ones(1, 1, 2, 2).double()
            ).tolist()
        with pytest.raises(errors.ShapeError, match="do not fit into an image"):
            gt.nn.functional.max_pool2d(gt.ones(1, 1, 4, 4), 7)
    finally:
        gt.disconnect()


LINES = {
    "conv1d": lambda f, x, w, b: f.conv1d(x, w, b, stride=2, padding=2, groups=2),
    "conv1d of one": lambda f, x, w, _b: f.conv1d(x[0], w, None, dilation=2, groups=2),
    "max_pool1d": lambda f, x, _w, _b: f.max_pool1d(x, 3, 2, 1),
    "avg_pool1d": lambda f, x, _w, _b: f.avg_pool1d(x, 4, 3, 1, True, False),
    "avg_pool2d": lambda f, x, _w, _b: f.avg_pool2d(x, (2, 3), 2, 1, True, True, 5),
    "conv2d of no rows": lambda f, x, w, _b: f.conv2d(x[:0, None], w[:, None, :3]),
}


@pytest.mark.parametrize("name", LINES)
def test_convolutions_and_pools_of_lines_are_as_pytorch(name, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("GT_BACKEND", "native")
    random = np.random.default_rng(0)
    values = [
        random.standard_normal(size).astype(np.float32) for size in ((2, 6, 31), (8, 3, 5), 8)
    ]
    found = []
    gt.disconnect()
    try:
        for module in (gt, torch):
            tensors = [module.tensor(value, requires_grad=True) for value in values]
            result = LINES[name](module.nn.functional, *tensors)
            (result * result).sum().backward()
            grads = [one.grad for one in tensors if one.grad is not None]
            found.append([np.array(one.tolist()) for one in (result, *grads)])
    finally:
        gt.disconnect()
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE * 10)


ATTENTION = {
    "plain": {},
    "causal": {"is_causal": True},
    "a mask of numbers": {"attn_mask": np.random.default_rng(2).normal(size=(1, 1, 20, 20))},
    "a mask of bools": {"attn_mask": np.random.default_rng(3).normal(size=(20, 20)) > -0.5},
    "another scale": {"scale": 0.3},
}


@pytest.mark.parametrize("queries", [20, 5])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_as_pytorch(name, queries, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("GT_BACKEND", "native")
    gt.disconnect()
    arrays = np.random.default_rng(1).normal(size=(3, 2, 3, queries, 8)).astype(np.float32)
    options = dict(ATTENTION[name])
    mask = options.pop("attn_mask", None)
    results = []
    for library in (gt, torch):
        leaves = [library.from_numpy(x).requires_grad_() for x in arrays]
        if mask is not None:
            part = mask[..., :queries, :queries]
            part = part if part.dtype == bool else part.astype(np.float32)
            options["attn_mask"] = library.from_numpy(np.ascontiguousarray(part))
        attend = library.nn.functional.scaled_dot_product_attention
        out = attend(*leaves, **options)
        out.square().sum().backward()
        results.append([x.numpy() for x in (out.detach(), *(leaf.grad for leaf in leaves))])
    gt.disconnect()
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_attention_holds_no_matrix_of_scores(monkeypatch):
    monkeypatch.setenv("GT_BACKEND", "native")
    gt.disconnect()
    leaves = [gt.ones(1, 4, 512, 16).requires_grad_() for _ in range(3)]
    out = gt.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
    out.sum().backward()
    assert leaves[2].grad.sum().item() == pytest.approx(4 * 512 * 16, rel=1e-5)
    (stats,) = gt.debug.get_worker_stats()
    gt.disconnect()
    assert stats["own_calls"] == 4  # forward, its gradient (of what that saved), two sums
    assert stats["bytes_peak"] < 512 * 512 * 4


def test_gradients_of_pools_read_the_places_that_forward_found(monkeypatch):
    monkeypatch.setenv("GT_BACKEND", "native")
    gt.disconnect()
    image = gt.arange(32.0).reshape(1, 2, 4, 4).requires_grad_()
    gt.nn.functional.max_pool2d(image, 2).sum().backward()
    wanted = [[0.0] * 4, [0.0, 1.0] * 2] * 2
    assert image.grad.tolist() == [[wanted] * 2]
    (stats,) = gt.debug.get_worker_stats()
    gt.disconnect()
    assert stats["own_calls"] == 3  # forward, its gradient and the sum


def test_digits_reach_97_percent_without_torch(without_torch):
    code = (
        "from gt.tools.demo import digits\n"
        "print(digits.train(digits.load(0), seed=0, show_progress=False).accuracy)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": without_torch, "GT_WORKERS": "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) >= 0.97
