"""Promises of `gt demo`: accuracy over five seeds, PyTorch's loss curve, the picture.

Each in a process of its own, because the number of workers is chosen before the first operation.
"""

import os
import subprocess
import sys

import pytest
from without_torch import path_without_torch

from gt.tools.demo.plot import running_mean

SEEDS = range(5)

ACCURACIES = """
import gt
from gt.tools.demo import digits
gt.gpu_workers(2)
for seed in {seeds}:
    result = digits.train(digits.load(seed), seed=seed, show_progress=False)
    print(seed, result.accuracy)
"""

DIFFERENCE = """
import torch
import gt
from gt.tools.demo import chargpt
torch.set_num_threads(1)
gt.gpu_workers(2)
result = chargpt.compare(seed=0, dtype={dtype!r}, show_progress=False)
losses = result.ours.losses
print(result.difference, result.limit, losses[0], losses[-1], len(losses))
"""


def output(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_five_seeds_reach_97_percent():
    lines = output(ACCURACIES.format(seeds=list(SEEDS))).splitlines()
    accuracies = {int(seed): float(accuracy) for seed, accuracy in map(str.split, lines)}
    assert set(accuracies) == set(SEEDS)
    assert min(accuracies.values()) >= 0.97, accuracies


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gpts_curve_is_pytorchs(dtype):
    difference, limit, first, last, steps = map(
        float, output(DIFFERENCE.format(dtype=dtype)).split()
    )
    assert steps == 200
    assert difference <= limit == {"float32": 1e-5, "float64": 1e-9}[dtype]
    assert last < 0.6 * first  # it learned


@pytest.mark.timeout(120)
def test_the_command(tmp_path):
    command = [sys.executable, "-m", "gt.tools.demo", "--quick", "--no-progress"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    for part in ("held-out scans right", "PyTorch's by at most", "steps/s", "what the GPT writes"):
        assert part in done.stdout


@pytest.mark.timeout(120)
def test_the_command_without_pytorch(tmp_path):
    command = [sys.executable, "-m", "gt.tools.demo", "--quick", "--no-progress"]
    path = {"PYTHONPATH": path_without_torch(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=os.environ | path
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo.png").exists()
    for part in ("held-out scans right", "PyTorch is not installed", "what the GPT writes"):
        assert part in done.stdout


@pytest.mark.fast
@pytest.mark.parametrize("count", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("length", [1, 2, 7, 30])
def test_the_curve_is_the_mean_of_the_values_around_a_step(length, count):
    values = [float((7 * place) % 11) for place in range(length)]
    for place, mean in enumerate(running_mean(values, count)):
        start = place - count // 2
        window = values[max(start, 0) : start + count]
        assert mean == pytest.approx(sum(window) / len(window))
