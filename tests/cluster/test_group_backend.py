"""Workers that meet in process groups of torch.distributed, as those of several hosts can: Gloo.

They stay on TCP over loopback, which is declared a trusted network; test_hosts.py has two networks.
"""

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator

import classifier
import numpy as np
import pytest
from cluster import Cluster, in_groups

import gt
from gt import _core

torch = pytest.importorskip("torch")
if sys.version_info < (3, 11):
    pytest.skip("the harness reads ops.toml by tomllib", allow_module_level=True)

from harness.layouts import WHOLE, drawn, place  # noqa: E402
from test_placements import check_programs  # noqa: E402

from gt.worker.group_backend import interface_of  # noqa: E402

WORKERS = 3
STEPS = 5
PROGRAMS = 12
GROUPS = ["--tcp", "--process-groups", "gloo", "--trusted-network", "127.0.0.0/8"]
# Three workers import torch before they join.
JOIN_SECONDS = 60.0
DTYPES = ["float64", "float32", "int64", "int32", "int16", "uint8", "bool"]


def started(workers: int) -> Cluster:
    running = Cluster(0, backend="pytorch")
    running.command += GROUPS
    for _ in range(workers):
        running.add_worker()
    running.wait_for_workers(seconds=JOIN_SECONDS)
    gt.connect(running.address)
    return running


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started(WORKERS) as running:
        yield running
        gt.disconnect()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--process-groups", "gloo"], "none of [] has this worker's address 127.0.0.1"),
        (["--process-groups", "nccl", "--trusted-network", "127.0.0.0/8"], "values are on cpu"),
        (["--process-groups", "gloo", "--backend", "numpy"], "need PyTorch's backend"),
        (["--process-groups", "gloo", "--trusted-network", "10.0.0.0/40"], "10.0.0.0/40"),
    ],
)
def test_a_worker_that_cannot_have_groups_says_why(words: list[str], text: str) -> None:
    command = [sys.executable, "-m", "gt.worker", "--port", "1", "--backend", "pytorch", *words]
    worker = subprocess.run(
        command, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True
    )
    assert worker.returncode == 2
    assert text in worker.stderr
    assert "Traceback" not in worker.stderr


def test_numpys_workers_go_without_groups_where_nobody_asked_for_them() -> None:
    command = [sys.executable, "-m", "gt.worker", "--port", "1", "--backend", "numpy"]
    trusting = os.environ | {"GT_TRUSTED_NETWORKS": "127.0.0.0/8"}
    worker = subprocess.run(command, env=trusting, capture_output=True, text=True)
    assert "Connection refused" in worker.stderr  # it came as far as that


def test_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") is None  # nobody's


def test_training_has_the_losses_of_one_worker(cluster: Cluster) -> None:
    expected = classifier.losses(torch, 3, STEPS)
    losses = classifier.losses(gt, 3, STEPS, spread=True)
    assert losses == pytest.approx(expected, rel=1e-6)
    again = classifier.losses(gt, 3, STEPS, spread=True)
    assert again == losses  # to the bit
    assert all(in_groups(worker) for worker in cluster.workers)


@pytest.mark.parametrize("seed", range(60))
def test_random_redistribution_changes_no_value(cluster: Cluster, seed: int) -> None:
    draw = random.Random(seed)
    dtype = draw.choice(DTYPES)
    shape = [draw.choice([0, 1, 2, 3, 5, 8, 40]) for _ in range(draw.randint(1, 3))]
    values = np.random.default_rng(seed).integers(0, 5, size=shape).astype(dtype)
    x = gt.tensor(values)
    for _ in range(3):
        layout = drawn(shape, WORKERS, draw)
        x = place(x, layout)
        if layout != WHOLE and draw.random() < 0.5:
            mesh = layout[layout.index("@") :]
            dimensions = len(mesh) - len(mesh.lstrip("@[")) - 1
            x = _core.distribute(x, layout=",".join(["replicate"] * dimensions) + mesh)
    np.testing.assert_array_equal(x.numpy(), values)


def test_random_programs(cluster: Cluster) -> None:
    check_programs(WORKERS, range(PROGRAMS))


def test_large_values_and_halves(cluster: Cluster) -> None:
    array = classifier.numbers(1, 700, 1000)
    spread = gt.distribute(gt.tensor(array), dim=0)
    np.testing.assert_allclose((spread.T @ spread).numpy(), array.T @ array, rtol=1e-9)
    np.testing.assert_array_equal(gt.distribute(spread, dim=1).numpy(), array)
    half = gt.distribute(gt.tensor(array).half(), dim=0)
    total = torch.tensor(array).half().sum(0)
    np.testing.assert_allclose(half.sum(0).numpy(), total.numpy(), rtol=2e-3, atol=5e-2)


@pytest.mark.filterwarnings("ignore::gt.UnreadFailureWarning")  # of the division itself
def test_a_failed_operand_is_everybodys_and_nobody_waits(cluster: Cluster) -> None:
    for _ in range(3):
        numbers = gt.distribute(gt.tensor([1, 2, 0, 3, 4, 5]), dim=0)
        failed = (60 // numbers).sum()
        with pytest.raises(gt.Error, match=r"[Zz]ero"):
            failed.item()
        assert (numbers * 2).sum().item() == 30


# A worker that has room for no group at all, instead of 64.
FULL = """
import runpy, sys
from gt.worker.pytorch import groups as torch_groups
torch_groups.GROUPS_MAX = 0
runpy.run_module("gt.worker", run_name="__main__", alter_sys=True)
"""


def test_where_one_has_no_room_for_a_group_all_go_by_bytes() -> None:
    gt.disconnect()
    with Cluster(0, backend="pytorch") as running:
        running.command += GROUPS
        running.add_worker()
        running.add_worker()
        running.wait_for_workers(seconds=JOIN_SECONDS)
        running.command[1:3] = ["-c", FULL]
        running.add_worker()
        running.wait_for_workers(seconds=JOIN_SECONDS)
        gt.connect(running.address)
        array = classifier.numbers(3, 30, 40)
        for workers in ("[0,1,2]", "[0,1]", "[0,1,2]", "[0,1]"):
            cut = _core.distribute(gt.tensor(array), layout=f"shard(0)@{workers}")
            np.testing.assert_allclose((cut.T @ cut).numpy(), array.T @ array, rtol=1e-9)
        assert [in_groups(worker) for worker in running.workers] == [True, True, False]
        gt.disconnect()


@pytest.mark.filterwarnings("ignore::gt.UnreadFailureWarning")  # of the sum, if it was not read
def test_a_killed_worker_ends_its_groups() -> None:
    gt.disconnect()
    with started(WORKERS) as cluster:
        shard = gt.distribute(gt.tensor(classifier.numbers(1, 64, 64)), dim=0)
        total = gt.distribute(gt.tensor(classifier.numbers(2, 64, 64)))
        assert (shard.T @ shard).sum().item() != 0
        for _ in range(200):
            total = total + shard.T @ shard
        index = WORKERS - 1
        cluster.kill_worker(index)
        with pytest.raises(gt.errors.WorkerError, match=f"worker {index} is gone"):
            shard.tolist()
        with contextlib.suppress(gt.errors.WorkerError):  # summed in time or not, but no hang
            total.sum().item()
        expected = classifier.losses(torch, 3, 3)
        assert classifier.losses(gt, 3, 3, spread=True) == pytest.approx(expected, rel=1e-6)
        cluster.add_worker()  # of the same index: those that are left meet it anew
        cluster.wait_for_workers(seconds=JOIN_SECONDS)
        assert classifier.losses(gt, 3, 3, spread=True) == pytest.approx(expected, rel=1e-6)
        assert all(in_groups(worker) for worker in cluster.workers)
        gt.disconnect()
