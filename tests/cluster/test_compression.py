"""Bytes for workers of other hosts are packed without loss: on a slow link, or when asked for.

Sums that go there are rounded first by a codec, where a user names one.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster
from test_hosts import TwoHosts, two_networks

import gt
from gt import config, nn
from gt import distributed as dist

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


@pytest.mark.parametrize("words", ["bf16,int8", "off,int8", "on,", "on,off"])
def test_words_that_contradict_each_other_are_refused(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GT_COMPRESSION", words)
    with pytest.raises(ValueError, match=f"GT_COMPRESSION={words}: expected one of"):
        config.compression()


# ---- codecs that lose bits ----


@contextlib.contextmanager
def far_workers(count: int, monkeypatch: pytest.MonkeyPatch, words: str) -> Iterator[Cluster]:
    """Workers that share no memory, as those of several hosts."""
    monkeypatch.setenv("GT_COMPRESSION", words)
    with Cluster(0, backend="pytorch") as cluster:
        cluster.command.append("--tcp")
        for _ in range(count):
            cluster.add_worker()
        cluster.wait_for_workers(seconds=50)
        gt.connect(cluster.address)
        try:
            yield cluster
        finally:
            gt.disconnect()


def summed(numbers: "torch.Tensor") -> "torch.Tensor":
    """The sum over dimension 0 of numbers of which each worker has a row: the same bits on all."""
    whole = dist.all_reduce(gt.distribute(gt.tensor(numbers.numpy()), dim=0).sum(0))
    copies = [torch.tensor(whole.to_local(rank).tolist()) for rank in range(len(numbers))]
    assert all(torch.equal(copies[0], copy) for copy in copies)
    return copies[0]


def rounding(name: str) -> list[float]:
    return [row[name] for row in gt.debug.get_worker_stats()]


SHARE = {"bf16": 0.51, "int8": 0.28}


@pytest.mark.parametrize("codec", ["bf16", "int8"])
@pytest.mark.parametrize("count", [2, 3])
def test_sums_lose_what_the_codec_says(
    count: int, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = torch.randn(count, 300_001, generator=torch.Generator().manual_seed(2))
    largest = torch.nn.functional.pad(numbers.abs(), (0, -300_001 % 256))
    largest = largest.unflatten(1, (-1, 256)).amax(2).repeat_interleave(256, 1)[:, :300_001]
    bound = numbers.abs() / 256 if codec == "bf16" else largest / 127 / 2 * (1 + 2**-16)
    expected = numbers.double().sum(0)
    limit = bound.double().sum(0)
    if count > 2:  # the sums go back in bfloat16
        limit = limit + (expected.abs() + limit) / 256
    with far_workers(count, monkeypatch, f"on,{codec}"):
        result = summed(numbers)
        assert ((result.double() - expected).abs() <= limit + 1e-6 * expected.abs() + 1e-6).all()
        assert not torch.equal(result, numbers.sum(0))
        assert rounding("rounded_sums") == [1.0] * count
        largest_error = {"bf16": 2.5e-3, "int8": 1e-2}[codec]
        assert all(1e-4 < error < largest_error for error in rounding("rounding_error"))
        assert rounding("rounding_error_max") == rounding("rounding_error")
        plain, packed = counted()
        assert plain > 2 * 300_001 * 4 * 0.9
        share = SHARE[codec] if count == 2 else (SHARE[codec] + SHARE["bf16"]) / 2
        assert packed / plain < share
        # Small sums, other dtypes and other reductions stay as they are.
        assert torch.equal(summed(numbers[:, :1000].clone()), numbers[:, :1000].sum(0))
        assert torch.equal(summed(numbers.to(torch.int32)), numbers.to(torch.int32).sum(0))
        most = dist.all_reduce(gt.distribute(gt.tensor(numbers.numpy()), dim=0).amax(0), "max")
        assert torch.equal(torch.tensor(most.tolist()), numbers.amax(0))
        assert rounding("rounded_sums") == [1.0] * count


@pytest.mark.parametrize("words", ["int8", "auto,bf16"])
def test_nothing_is_rounded_on_one_host(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = torch.randn(2, 70_000, generator=torch.Generator().manual_seed(2))
    with far_workers(2, monkeypatch, words):  # the loopback interface
        assert torch.equal(summed(numbers), numbers.sum(0))
    monkeypatch.setenv("GT_COMPRESSION", f"on,{words.removeprefix('auto,')}")
    with Cluster(2, backend="pytorch") as cluster:  # shared memory
        cluster.wait_for_workers(seconds=50)
        gt.connect(cluster.address)
        try:
            assert torch.equal(summed(numbers), numbers.sum(0))
            assert rounding("rounded_sums") == [0.0, 0.0]
        finally:
            gt.disconnect()


def trained(steps: int) -> list[float]:
    """Losses of a data parallel training, at whose end all workers have the same weights."""
    gt.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 8)
    )
    for parameter in model.parameters():
        parameter.data = gt.distribute(parameter.data)
    optimizer = gt.optim.AdamW(model.parameters(), lr=2e-3)
    inputs = gt.randn(128, 64)
    targets = (inputs[:, :8] * inputs[:, 8:16]).detach()
    cut = gt.distribute(inputs, dim=0)
    cut_targets = gt.distribute(targets, dim=0)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(cut), cut_targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    workers = range(gt.debug.stats()["workers"])
    for parameter in model.parameters():
        copies = [parameter.detach().to_local(worker).tolist() for worker in workers]
        assert all(copy == copies[0] for copy in copies)
    return losses


def test_training_converges_beside_no_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {}
    for words in ("off", "on,bf16", "on,int8"):
        with far_workers(3, monkeypatch, words):
            losses[words] = trained(40)
            assert (rounding("rounded_sums")[0] > 40) == (words != "off")
    plain = losses["off"]
    assert plain[-1] < 0.2 * plain[0]
    for words in ("on,bf16", "on,int8"):
        assert losses[words] != plain
        assert losses[words][-1] == pytest.approx(plain[-1], rel=0.1)


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
