"""Gradients are reduced by few exchanges, and to the bit as each would be for itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("gpt_layouts.py")
ALONE, TOGETHER = 0, 1 << 20


def run(folder, bucket, *command):
    """JSON that a program prints when reductions are bucketed up to `bucket` bytes."""
    prices = folder / f"prices{bucket}"
    prices.write_text(f"bucket={bucket}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *command],
        env=os.environ | {"GT_BACKEND": "numpy", "GT_THREADS": "1", "GT_PRICES": str(prices)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("layout", ["dp2", "dp3", "dp4", "dp2tp2", "sequence2"])
def test_a_gpt_trains_the_same_with_fewer_exchanges(layout, tmp_path):
    command = (
        str(PROGRAM), layout, "--steps", "5", "--dtype", "float32",
        "--config", str(tmp_path / "layout.yaml"),
    )  # fmt: skip
    alone, together = (run(tmp_path, bucket, *command) for bucket in (ALONE, TOGETHER))
    assert together["losses"] == alone["losses"]
    before, after = alone["a_step"], together["a_step"]
    assert after["moved_bytes"] == before["moved_bytes"]
    # All but a few of the reductions of 69 parameters; tensor parallelism and the loss need others.
    assert after["all_reduces"] <= before["all_reduces"] - 65


ACCUMULATED = """
import json, sys
import gt
gt.gpu_workers(2)
gt.manual_seed(3)
model = gt.nn.Sequential(gt.nn.Linear(5, 7), gt.nn.Tanh(), gt.nn.Linear(7, 3))
optimizer = gt.optim.Adam(model.parameters())
x = gt.distribute(gt.randn(4, 5), dim=0)
reductions = []
for step in range(4):
    before = gt.debug.stats()["all_reduces"]
    optimizer.zero_grad()
    for _ in range(3 if sys.argv[1] == "sums" else 1):
        model(x).square().sum().backward()
    if sys.argv[1] == "clipped":
        gt.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    reductions.append(gt.debug.stats()["all_reduces"] - before)
weights = [w.detach().cpu().tolist() for w in model.parameters()]
print(json.dumps({"weights": weights, "reductions": reductions}))
"""


@pytest.mark.parametrize("way", ["sums", "clipped"])
def test_gradients_that_others_read_first_are_reduced_together_too(way, tmp_path):
    alone, together = (run(tmp_path, one, "-c", ACCUMULATED, way) for one in (ALONE, TOGETHER))
    assert together["weights"] == alone["weights"]
    assert alone["reductions"][1:] == [4] * 3
    assert together["reductions"][2:] == [1] * 2


PAIRS = """
import json, sys
import numpy as np
import gt
gt.gpu_workers(int(sys.argv[1]))
random = np.random.default_rng(0)
found, reductions = [], set()
for dtype in ("float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool"):
    for size in (1, 3, 7001):
        shards = gt.distribute(gt.tensor(random.integers(-9, 9, (5, size))), dim=0)
        one, two = shards.to(getattr(gt, dtype)).sum(0), (shards * 0.3).sum(0)
        before = gt.debug.stats()["all_reduces"]
        found.append(gt.maximum(one, two).to(gt.float64).sum().item())
        found.append((one.to(gt.float64) * 3).tolist()[:4])
        reductions.add(gt.debug.stats()["all_reduces"] - before)
print(json.dumps([found, sorted(reductions)]))
"""


@pytest.mark.parametrize("workers", [2, 3])
def test_values_of_any_dtype_and_size_share_an_exchange(workers, tmp_path):
    (alone, two), (together, one) = (
        run(tmp_path, bucket, "-c", PAIRS, str(workers)) for bucket in (ALONE, TOGETHER)
    )
    assert together == alone
    assert max(two) == 2  # sums of half precision are rounded where they are made
    assert one == [1]


def test_a_failed_gradient_spoils_no_other(tmp_path):
    program = """
import json
import gt
gt.gpu_workers(2)
table = gt.nn.Parameter(gt.randn(4, 3))
bias = gt.nn.Parameter(gt.randn(3))
optimizer = gt.optim.SGD([table, bias], lr=0.5)
expected = bias.detach().clone()
for step in range(3):
    good = step < 2
    rows = gt.distribute(gt.tensor([0, 1, 2, 3 if good else 9]), dim=0)
    optimizer.zero_grad()
    rows = gt.nn.functional.embedding(rows, table)
    (rows.sum() + (gt.distribute(gt.ones(4, 3), dim=0) * bias).sum()).backward()
    optimizer.step()
    expected = expected - 0.5 * 4
try:
    table.tolist()
    failed = ""
except IndexError as error:
    failed = str(error)
print(json.dumps([failed, gt.allclose(bias, expected)]))
"""
    failed, is_right = run(tmp_path, TOGETHER, "-c", program)
    assert failed
    assert is_right
