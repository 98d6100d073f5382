"""A client that stays on TCP, as one on another host does, also over a network that fails."""

import struct
from collections.abc import Callable, Iterator

import classifier
import numpy as np
import pytest
from cluster import Cluster, until
from cutting_proxy import CuttingProxy

import gt
from gt import _core

torch = pytest.importorskip("torch")

STEPS = 15


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1) as running:
        running.wait_for_workers()
        yield running


@pytest.fixture(autouse=True)
def on_tcp(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GT_NO_RING", "1")
    yield
    gt.disconnect()


def is_trained(losses: list[float]) -> None:
    np.testing.assert_allclose(losses, classifier.losses(torch, 3, len(losses)), rtol=1e-9)


def test_training(cluster: Cluster) -> None:
    gt.connect(cluster.address)
    assert _core.describe() == f"dispatcher at {cluster.address}, by TCP"
    is_trained(classifier.losses(gt, 3, STEPS))


def test_long_values(cluster: Cluster) -> None:
    gt.connect(cluster.address)
    array = classifier.numbers(1, 1000, 1000)  # 8 MB, many frames both ways
    np.testing.assert_array_equal((gt.tensor(array) + 1).numpy(), array + 1)


def test_a_dispatcher_of_this_host_behind_a_forwarded_port_opens_its_local_connection(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GT_NO_RING")
    with CuttingProxy(("127.0.0.1", int(cluster.port))) as proxy:
        gt.connect(proxy.address)
        assert "shared memory" in _core.describe()
        gt.disconnect()


def test_a_dropped_link_is_resumed(cluster: Cluster) -> None:
    with CuttingProxy(("127.0.0.1", int(cluster.port))) as proxy:
        gt.connect(proxy.address)
        value = gt.arange(5)
        array = classifier.numbers(2, 300, 300)
        for drop in range(5):
            total = gt.tensor(array)
            for _ in range(100):
                total = total + 1
            proxy.cut()  # with much of that in flight
            np.testing.assert_allclose(total.numpy(), array + 100, rtol=1e-12)
            until(lambda seen=drop: proxy.connections >= seen + 2)
        is_trained(classifier.losses(gt, 3, STEPS))
        assert value.tolist() == [0, 1, 2, 3, 4]
        gt.disconnect()
    assert "is resumed" in cluster.log
    assert " WARN " not in cluster.log, cluster.log


F32, F64 = 8, 9  # codes of dtypes, docs/wire.md
SHORT = (3, 100_009)  # no other number of a reply is their product
COUNT = SHORT[0] * SHORT[1]


def shortened(chunk: bytes) -> bytes:
    """The first reply's own count of elements in place of the total."""
    total = chunk.find(struct.pack("<Q", COUNT))
    return chunk if total < 8 else chunk[:total] + chunk[total - 8 : total] + chunk[total + 8 :]


def in_other_elements(chunk: bytes) -> bytes:
    """Two elements of 8 bytes in place of four of 4 bytes."""
    whole = struct.pack("<QQQI", 0, 4, 4, F32)
    other = struct.pack("<QQQI", 0, 2, 2, F64)
    return chunk.replace(whole, other)


@pytest.mark.parametrize(
    ("alter", "shape", "text"),
    [
        (shortened, SHORT, r"a read of 300027 f32 from 0 on with (\d+) of \1 f32 from 0 on"),
        (in_other_elements, (4,), r"a read of 4 f32 from 0 on with 2 of 2 f64 from 0 on"),
    ],
    ids=["short", "dtype"],
)
def test_other_elements_than_a_read_asked_for_fail_it(
    cluster: Cluster, alter: Callable[[bytes], bytes], shape: tuple[int, ...], text: str
) -> None:
    with CuttingProxy(("127.0.0.1", int(cluster.port)), alter) as proxy:
        gt.connect(proxy.address)
        value = gt.ones(*shape)
        with pytest.raises(gt.errors.ConnectionLost, match=text):
            value.numpy()
        gt.disconnect()


def test_a_session_that_is_over_is_one_error() -> None:
    with Cluster(1) as ends, CuttingProxy(("127.0.0.1", int(ends.port))) as proxy:
        gt.connect(proxy.address)
        value = gt.ones(2)
        assert value.tolist() == [1, 1]
        ends.stop()
        with pytest.raises(gt.errors.ConnectionLost, match="the dispatcher stops"):
            value.tolist()
