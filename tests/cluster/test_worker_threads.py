"""A worker's threads: small instructions wake none, and none spins on the client's core."""

import os
import subprocess
import sys

import pytest

from gt import config

torch = pytest.importorskip("torch")

COUNT = """
import os
from pathlib import Path
import gt

def threads() -> int:
    tasks = Path("/proc/self/task").glob("*/children")
    (worker,) = [pid for task in tasks for pid in task.read_text().split()]
    return len(os.listdir(f"/proc/{worker}/task"))

def product(rows: int, inner: int, columns: int) -> None:
    assert (gt.ones(rows, inner) @ gt.ones(inner, columns)).sum().item() == rows * inner * columns

product(2, 2, 2)
begun = threads()
product(8, 64, 64)
gt.ones(100_000).exp().softmax(0).tolist()
small = threads()
product(512, 512, 512)
print(begun, small, threads())
"""


@pytest.mark.parametrize("rows", ["on", "off"])  # `auto` has a thread that comes and goes
@pytest.mark.skipif(torch.get_num_threads() == 1, reason="torch has one thread here")
def test_small_instructions_have_one_thread_and_large_ones_all(rows):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {"GT_BACKEND": "pytorch", "GT_THREADS": "2", "CUDA_VISIBLE_DEVICES": ""}
    environment["GT_ATEN"] = rows
    done = subprocess.run(
        [sys.executable, "-c", COUNT], env=environment, check=True, capture_output=True, timeout=50
    ).stdout
    begun, small, large = map(int, done.split())
    assert (small - begun, large - begun) == (0, 1)


def test_threads_sleep_between_instructions_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    config.use_threads(3)
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["OMP_NUM_THREADS"]) == ("PASSIVE", "3")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    config.use_threads(None)
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["OMP_NUM_THREADS"]) == ("ACTIVE", "3")


def test_the_users_number_of_threads_wins(monkeypatch):
    monkeypatch.delenv("GT_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert config.threads() is None
    monkeypatch.setenv("OMP_NUM_THREADS", "6,2")
    assert config.threads() == 6
    monkeypatch.setenv("GT_THREADS", "4")
    assert config.threads() == 4
