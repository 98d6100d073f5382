"""Uploads are sharded on their way: every member gets its shard, and reads come from each."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from cluster import Cluster
from spread_session import workers

import gt
from gt import ShardConfig, SignalConfig

WORKERS = 4
NAMES = map("upload{}".format, itertools.count())
LAYOUTS = {
    "rows": ShardConfig(axis=0),
    "columns": ShardConfig(axis=1),
    "last": ShardConfig(axis=-1),
    "some": ShardConfig(axis=0, workers=[3, 1]),
    "blocks": ShardConfig(axis=1, blocks=3),
    "copies": ShardConfig(replicated=True),
    "grid": ShardConfig(mesh={"dp": 2, "tp": 2}, placements=["shard(0)", "shard(1)"]),
    "grid turned": ShardConfig(mesh={"dp": 2, "tp": 2}, placements=["shard(2)", "shard(0)"]),
    "copies of columns": ShardConfig(mesh={"dp": 2, "tp": 2}, placements=["replicate", "shard(1)"]),
}
# Even and uneven, smaller than the mesh, empty, one number, large enough for frames and gathers.
SHAPES = [(8, 12, 4), (7, 9, 5), (2, 3, 1), (0, 3, 2), (3, 0), (5,), (), (1, 70_001), (600, 6, 100)]
DTYPES = ["float32", "int64", "uint8", "bool", "float16"]


@contextmanager
def scope(shard: ShardConfig) -> Iterator[None]:
    """A scope that lays out what is made in it."""
    name = next(NAMES)
    gt.register_config(name, SignalConfig(shard=shard))
    with gt.signal.context(name):
        yield
    gt.register_config(name, None)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    count = int(np.prod(shape))
    return (np.arange(count) * 7 % 251).astype(dtype).reshape(shape)


def check(value: np.ndarray, shard: ShardConfig) -> None:
    """It comes back whole, part by part, and computed with."""
    with scope(shard):
        x = gt.from_numpy(value)
    np.testing.assert_array_equal(x.numpy(), value)
    if value.size:
        flat = value.reshape(-1)
        last = tuple(size - 1 for size in value.shape)
        assert x[last].item() == flat[-1]
        assert (x != 0).sum().item() == np.count_nonzero(flat)
    np.testing.assert_array_equal((x + x).numpy(), value + value)
    np.testing.assert_array_equal(x.numpy(), value)


def check_all() -> None:
    for (name, shard), shape in itertools.product(LAYOUTS.items(), SHAPES):
        dtype = DTYPES[(len(name) + len(shape)) % 3]
        check(numbers(shape, dtype), shard)
    for shard, dtype in itertools.product((LAYOUTS["columns"], LAYOUTS["grid"]), DTYPES):
        check(numbers((33, 7, 3), dtype), shard)


@pytest.fixture(scope="module")
def cluster():
    with Cluster(WORKERS) as cluster:
        cluster.wait_for_workers()
        yield cluster


def test_every_layout_embedded():
    with workers(WORKERS):
        check_all()


@pytest.mark.parametrize("ring", ["", "1"], ids=["ring", "tcp"])
def test_every_layout_by_a_dispatcher(cluster, monkeypatch, ring):
    monkeypatch.setenv("GT_NO_RING", ring)
    gt.connect(cluster.address)
    try:
        check_all()
    finally:
        gt.disconnect()


def peaks() -> list[int]:
    return [worker["bytes_peak"] for worker in gt.debug.get_worker_stats()]


@pytest.mark.parametrize("name", ["rows", "columns", "blocks", "grid"])
def test_nobody_holds_more_than_a_share(name):
    value = numbers((512, 48, 64), "float32")
    with workers(WORKERS):
        with scope(LAYOUTS[name]):
            x = gt.from_numpy(value)
        np.testing.assert_array_equal(x.numpy(), value)
        assert max(peaks()) == value.nbytes // WORKERS
        y = x * 2
        np.testing.assert_array_equal(y.numpy(), value * 2)
        assert max(peaks()) == 2 * value.nbytes // WORKERS
        assert gt.debug.stats()["moved_bytes"] == 0


def test_copies_are_sent_once_and_gathered_by_all():
    value = numbers((512, 48, 64), "float32")
    with workers(WORKERS):
        with scope(LAYOUTS["copies"]):
            x = gt.from_numpy(value)
        assert max(peaks()) == value.nbytes // WORKERS
        assert gt.debug.stats()["moved_bytes"] == 0
        np.testing.assert_array_equal((x + 1)[:2].numpy(), value[:2] + 1)
        assert gt.debug.stats()["moved_bytes"] == (WORKERS - 1) * value.nbytes


def batch() -> gt.Tensor:
    """Every call is the same line."""
    return gt.from_numpy(numbers((1024, 512), "float32"))


def test_the_second_batch_has_the_layout_that_the_first_was_needed_in():
    size = 1024 * 512 * 4
    with workers(WORKERS):
        layouts, moved = [], []
        for _ in range(3):
            x = batch()
            layouts.append(str(gt.explain(x).layout))
            y = gt.distribute(x, dim=0)
            np.testing.assert_array_equal(y.numpy(), numbers((1024, 512), "float32"))
            moved.append(gt.debug.stats()["moved_bytes"])
            del x, y
        cut = "shard(0)@[0,1,2,3]"
        assert layouts == ["replicate@[0]", cut, cut]
        assert moved == [size // WORKERS * (WORKERS - 1)] * 3


def mixed() -> gt.Tensor:
    return gt.from_numpy(numbers((1024, 512), "float32"))


def test_a_batch_that_is_needed_in_two_ways_stays():
    with workers(2):
        for dims in ((0, 1), (0, 1), (1, 0)):
            x = mixed()
            assert str(gt.explain(x).layout) == "replicate@[0]"
            for dim in dims:
                y = gt.distribute(x, dim=dim)
                np.testing.assert_array_equal(y.numpy(), numbers((1024, 512), "float32"))


def test_a_worker_lost_between_two_reads():
    value = numbers((600, 1000), "float32")
    with Cluster(2) as cluster:
        cluster.wait_for_workers()
        gt.connect(cluster.address)
        try:
            with scope(LAYOUTS["columns"]):
                x = gt.from_numpy(value)
                y = x + 1
            np.testing.assert_array_equal(y.numpy(), value + 1)
            cluster.kill_worker(1)
            for lost in (x, y, y * 2):
                with pytest.raises(gt.errors.WorkerError, match="worker 1 is gone"):
                    lost.numpy()
            with scope(LAYOUTS["columns"]):
                np.testing.assert_array_equal(gt.from_numpy(value).numpy(), value)
        finally:
            gt.disconnect()


STREAM = """
import numpy as np
gt.register_config("cut", gt.SignalConfig(shard=gt.ShardConfig(axis=1)))
value = np.arange(8_000_000, dtype=np.float32).reshape(1000, 8000)
print("begun", flush=True)
reason = "between two of them worker 1 is gone"
try:
    while len(gt.debug.get_worker_stats()) == 2:
        with gt.signal.context("cut"):
            x = gt.from_numpy(value)
        assert (x.numpy() == value).all()
except gt.errors.WorkerError as error:
    reason = str(error)
print(reason)
"""


def test_a_worker_lost_between_chunks():
    with Cluster(2) as cluster:
        cluster.wait_for_workers()
        client = cluster.client(STREAM)
        client.stdout.readline()
        cluster.kill_worker(1)
        printed, errors = client.communicate(timeout=30)
        assert "worker 1 is gone" in printed, errors
        assert cluster.run("print(gt.ones(3).sum().item())").strip() == "3.0"
