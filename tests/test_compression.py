"""Bytes for workers of other hosts are packed without loss: on a slow link, or when asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster
from test_hosts import TwoHosts, two_networks

import gt

torch = pytest.importorskip("torch")

__all__ = ["two_networks"]

SIZE = 1024
LINK_MBIT = 300  # slower than packing by far, quick enough for a test


def gathered(dtype: gt.dtype, numbers: "torch.Tensor") -> list[float]:
    """Numbers that were cut over all workers, whole again on each of them."""
    cut = gt.distribute(gt.tensor(numbers.float().numpy()).to(dtype), dim=0)
    return gt.distribute(cut).float().tolist()


def counted() -> tuple[int, int]:
    stats = gt.debug.get_worker_stats()
    return sum(row["plain_bytes"] for row in stats), sum(row["packed_bytes"] for row in stats)


@pytest.mark.parametrize("word", ["on", "auto", "off"])
def test_values_are_the_same_bits_and_bfloat16_is_a_quarter_shorter(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GT_COMPRESSION", word)
    numbers = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    numbers[3, 5], numbers[700, 2], numbers[9, 9] = float("inf"), -0.0, 1e-40
    with Cluster(0, backend="pytorch") as cluster:
        cluster.command.append("--tcp")
        cluster.add_worker()
        cluster.add_worker()
        cluster.wait_for_workers(seconds=50)
        gt.connect(cluster.address)
        try:
            halves = numbers.bfloat16()
            assert gathered(gt.bfloat16, halves) == halves.float().tolist()
            plain, packed = counted()
            if word == "on":
                assert plain > 2 * SIZE * SIZE  # each sends its half to the other
                assert 0.74 < packed / plain < 0.78
            else:
                assert (plain, packed) == (0, 0)  # one host
            # The upper bytes of float32's lower half are noise: they go as they are.
            assert gathered(gt.float32, numbers) == numbers.tolist()
            assert counted() == (plain, packed)
        finally:
            gt.disconnect()


def test_another_word_is_refused() -> None:
    command = [sys.executable, "-m", "gt.worker", "--host", "127.0.0.1", "-p", "1"]
    settings = os.environ | {"GT_COMPRESSION": "zstd"}
    run = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "GT_COMPRESSION=zstd: expected one of auto, on, off" in run.stderr


SENT_AND_COUNTED = """
import numpy as np
numbers = np.random.default_rng(1).normal(size=(2048, 2048)).astype("float32")
for _ in range(4):
    cut = gt.distribute(gt.tensor(numbers).bfloat16(), dim=0)
    whole = gt.distribute(cut)
    assert (whole.float() == gt.tensor(numbers).bfloat16().float()).all().item()
stats = gt.debug.get_worker_stats()
print(*(sum(row[name] for row in stats) for name in ("plain_bytes", "packed_bytes")))
"""


def test_a_link_that_is_measured_to_be_slow(
    two_networks: tuple[str, str],
    tmp_path: Path,
) -> None:
    for end, name in zip("ab", two_networks, strict=True):
        shape = ["tbf", "rate", f"{LINK_MBIT}mbit", "burst", "64k", "latency", "100ms"]
        cable = ["tc", "qdisc", "add", "dev", f"gtv{os.getpid()}{end}", "root"]
        try:
            command = ["ip", "netns", "exec", name, *cable, *shape]
            subprocess.run(command, check=True, capture_output=True)
        except (subprocess.CalledProcessError, FileNotFoundError):
            pytest.skip("the rate of a cable cannot be limited here")
    with TwoHosts(two_networks, tmp_path, "--backend", "pytorch") as hosts:
        plain, packed = map(int, hosts.run(SENT_AND_COUNTED).split())
    assert plain > 0
    assert packed < 0.78 * plain
