"""Sharded tensors cost the memory of shards: none is ever whole on a worker, and FSDP holds a
share.

`--slow` makes tensors of 1 GB and writes the figures into the XML of `--junitxml`, for
benchmarks/full.py.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("memory_layouts.py")
MEGABYTES, MEGABYTES_SLOW = 64, 1024
SLOW_SECONDS_MAX = 600
SLACK = 1.02  # a tensor of one row, a sum
# Arrays of a parameter: itself, its gradient and AdamW's two moments.
COPIES = 4


def run(folder, *words):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words, "--config", str(folder / "layout.yaml")],
        env=os.environ | {"GT_BACKEND": "pytorch", "CUDA_VISIBLE_DEVICES": "", "GT_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SLOW_SECONDS_MAX - 10,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_creation(found):
    """No worker has ever held more than its share, and nothing passes through the client."""
    largest = 0.0
    for way, figures in found["ways"].items():
        largest = max(largest, figures["share"])  # peaks do not fall again
        assert figures["held"] <= SLACK * largest * found["bytes"], way
        assert figures["held"] > 0, way
    assert found["client"] < found["bytes"] / 16


@pytest.mark.timeout(SLOW_SECONDS_MAX)
def test_what_is_created_cut_is_never_whole(tmp_path):
    check_creation(run(tmp_path, "create", str(MEGABYTES)))


@pytest.mark.slow
@pytest.mark.timeout(SLOW_SECONDS_MAX)
def test_a_gigabyte_is_never_whole(tmp_path, record_property):
    figures = run(tmp_path, "create", str(MEGABYTES_SLOW))
    record_property("creation", json.dumps(figures))
    check_creation(figures)
    # The last way holds two tensors; what kernels need beside them shows in the processes only.
    assert max(figures["workers"]) < 0.75 * figures["bytes"]


@functools.cache
def trained(layout, folder):
    return run(folder, "train", layout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("memory")


@pytest.mark.timeout(SLOW_SECONDS_MAX)
@pytest.mark.parametrize("count", [2, 4])
def test_fsdp_holds_a_share(count, folder, record_property):
    """A share of all that belongs to parameters, and the largest layer, gathered for its use."""
    names = ("one", f"replicated{count}", f"fsdp{count}")
    one, replicated, cut = (trained(name, folder) for name in names)
    record_property("trained", json.dumps(dict(zip(names, (one, replicated, cut), strict=True))))
    assert cut["losses"] == pytest.approx(one["losses"], rel=1e-5)
    assert replicated["losses"] == pytest.approx(one["losses"], rel=1e-5)
    everything, layer = COPIES * one["parameters"], one["largest"]
    assert max(cut["held"]) <= SLACK * everything / count
    assert max(cut["peak"]) <= SLACK * everything / count + 2 * layer  # and its gradient
    assert min(replicated["peak"]) >= everything
