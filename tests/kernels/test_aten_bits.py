"""Whole programs, and PyTorch's samples, in C++ have the bits that they have in Python.

Rows one by one are in tests/kernels/test_aten_rows.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from spread_session import workers  # noqa: E402
from test_bits import random_programs, samples, training  # noqa: E402

import gt  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
ATEN_SHARE_MIN = 0.5
# Samples in float32 and their gradients; `just engines` compares all dtypes.
SAMPLES_MIN = 20_000
RAISED_SHARE_MAX = 0.01
SAMPLES_SECONDS_MAX = 900


def optimizers(_count: int) -> dict[str, bytes]:
    """Parameters after a few steps of what updates in one instruction each."""
    makers = {
        "SGD": lambda p: gt.optim.SGD(p, lr=0.1),
        "momentum": lambda p: gt.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        "Adam": lambda p: gt.optim.Adam(p, lr=0.01),
        "AdamW": lambda p: gt.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    }
    trained = {}
    for name, make in makers.items():
        gt.manual_seed(3)
        model = gt.nn.Sequential(
            gt.nn.Linear(6, 8),
            gt.nn.GELU(),
            gt.nn.LayerNorm(8),
            gt.nn.RMSNorm(8),
            gt.nn.Linear(8, 3),
        )
        optimizer = make(model.parameters())
        x, target = gt.randn(5, 6), gt.randint(0, 3, (5,))
        for _ in range(4):
            optimizer.zero_grad()
            gt.nn.functional.cross_entropy(model(x), target).backward()
            optimizer.step()
        trained[name] = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return trained


@pytest.mark.timeout(240)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.usefixtures("aten_helper")
def test_programs_have_the_same_bits(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    results: dict[str, dict[str, bytes]] = {}
    monkeypatch.setenv("GT_BACKEND", "pytorch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for mode in ("off", "on"):
        monkeypatch.setenv("GT_ATEN", mode)
        with workers(count):
            gt.ones(1).item()
            results[mode] = {
                name: data
                for part in (training, random_programs, samples, optimizers)
                for name, data in part(count).items()
            }
            stats = gt.debug.get_worker_stats()
        aten = sum(row["aten_calls"] for row in stats)
        python = sum(row["python_calls"] for row in stats)
        if mode == "off":
            assert aten == 0
        else:
            assert aten >= ATEN_SHARE_MIN * (aten + python), f"{aten}, {python} in Python"
    wrong = [name for name, data in results["off"].items() if results["on"][name] != data]
    assert not wrong


@pytest.mark.timeout(SAMPLES_SECONDS_MAX)
@pytest.mark.skipif(sys.version_info < (3, 11), reason="the harness reads ops.toml by tomllib")
@pytest.mark.usefixtures("aten_helper")
def test_samples_of_every_operator_have_the_same_bits() -> None:
    command = [sys.executable, "tests/operators/harness/engines.py", "--dtype", "float32"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=SAMPLES_SECONDS_MAX
    )
    assert done.stdout, done.stderr[-2000:]
    outcome = json.loads(done.stdout)
    assert not outcome["differ"]
    assert outcome["samples"] >= SAMPLES_MIN
    assert outcome["raised"] <= RAISED_SHARE_MAX * outcome["samples"]
    assert outcome["aten_calls"] >= ATEN_SHARE_MIN * outcome["python_calls"]


@pytest.mark.usefixtures("aten_helper")
def test_errors_are_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors that depend on values: class and text are equal, and later instructions run."""
    told = {}
    monkeypatch.setenv("GT_BACKEND", "pytorch")
    for mode in ("off", "on"):
        monkeypatch.setenv("GT_ATEN", mode)
        with workers(1):
            indices = gt.tensor([0, 7])
            with pytest.raises(Exception, match="out of") as error:
                gt.ones(3, 2)[indices].tolist()
            first = str(error.value).splitlines()[0]
            told[mode] = (type(error.value), first, gt.ones(2).sum().item())
    assert told["off"] == told["on"]


@pytest.mark.usefixtures("aten_helper")
def test_values_cross_between_cpp_and_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row without a line reads what a program made, and the other way; views see writes."""
    monkeypatch.setenv("GT_ATEN", "on")
    monkeypatch.setenv("GT_BACKEND", "pytorch")
    with workers(1):
        gt.manual_seed(0)
        x = gt.rand(4, 5) + 1  # drawn in Python, added in C++
        y = gt.linalg.cholesky(x.t() @ x + 5 * gt.eye(5))  # of a schema, in Python
        z = (y * 2).sum(0)
        part = z[1:3]
        part += 1
        ours = [z.numpy(), y.numpy(), x.numpy()]
        (stats,) = gt.debug.get_worker_stats()
    theirs = np.linalg.cholesky(ours[2].T @ ours[2] + 5 * np.eye(5, dtype=np.float32))
    np.testing.assert_allclose(ours[1], theirs, rtol=1e-4, atol=1e-4)
    expected = (ours[1] * 2).sum(0)
    expected[1:3] += 1
    np.testing.assert_allclose(ours[0], expected, rtol=1e-5, atol=1e-5)
    assert stats["aten_calls"] > 0
    assert stats["python_calls"] > 0
