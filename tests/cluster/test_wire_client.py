"""docs/wire.md is enough to write a client from: `wire_client.py` was, and works.

Against a real dispatcher and worker; with strangers beside it that break the rules.
"""

import struct
import threading
from collections.abc import Iterator

import pytest
import wire_client
from cluster import Cluster, until
from wire_client import I64, Client, Closed, Failed, Refused


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1) as running:
        running.wait_for_workers()
        yield running


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(address(cluster)) as connected:
        yield connected


def address(cluster: Cluster) -> tuple[str, int]:
    return "127.0.0.1", int(cluster.port)


def warnings(cluster: Cluster) -> list[str]:
    return [line for line in cluster.log.splitlines() if " WARN " in line]


def test_upload_add_read(client: Client) -> None:
    left = client.upload([1.0, 2.0, 3.5, -4.0], (2, 2))
    right = client.upload([0.5] * 4, (2, 2))
    total = client.add(left, right)
    assert client.read(total) == [1.5, 2.5, 4.0, -3.5]
    client.free(left, right)
    assert client.read(client.add(total, total)) == [3.0, 5.0, 8.0, -7.0]


def test_what_is_longer_than_a_chunk(client: Client) -> None:
    values = [float(place % 1000) for place in range(300_000)]
    long = client.upload(values, (300, 1000))
    assert client.read(client.add(long, long)) == [2 * value for value in values]


def test_a_failure_names_its_first_cause(client: Client) -> None:
    source = client.upload([1.0, 2.0], (2,))
    index = client.upload([0, 7], (2,), I64)
    wrong = client.gather(source, index, 0)
    with pytest.raises(Failed, match="out of bounds") as direct:
        client.read(wrong)
    with pytest.raises(Failed) as inherited:
        client.read(client.add(wrong, source))
    assert str(direct.value) == str(inherited.value)
    assert client.read(source) == [1.0, 2.0]


def test_another_version_is_refused(cluster: Cluster) -> None:
    before = len(warnings(cluster))
    with pytest.raises(Refused, match=r"(?s)version.*9.*1"):
        Client(address(cluster), version=9)
    until(lambda: len(warnings(cluster)) == before + 1)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (struct.pack("<IQQ", 0xFFFF_FFFC, 1, 0), "length"),
        (struct.pack("<IQQ", 8, 1, 0) + struct.pack("<2I", 1 << 16 | 0xEFFF, 0), "instruction"),
        (struct.pack("<IQQ", 4, 1, 2**63) + bytes(4), "acknowledged"),
    ],
    ids=["length", "code", "acknowledgement"],
)
def test_a_breach_ends_one_session_with_one_line(
    cluster: Cluster, client: Client, frame: bytes, text: str
) -> None:
    mine = client.upload([1.0], (1,))
    before = len(warnings(cluster))
    with Client(address(cluster)) as stranger:
        stranger.socket.sendall(frame)
        news = iter(stranger.receive, None)  # of the workers first
        with pytest.raises(Closed):
            list(news)
    until(lambda: len(warnings(cluster)) == before + 1)
    assert "closed" in warnings(cluster)[-1]
    assert client.read(mine) == [1.0]


def test_a_payload_of_2_to_the_63_is_a_breach(cluster: Cluster, client: Client) -> None:
    mine = client.upload([1.0], (1,))
    with Client(address(cluster)) as stranger:
        stranger.upload([1.0], (2**31, 2**31))
        with pytest.raises((Closed, Failed)):
            stranger.read(0)
    assert client.read(mine) == [1.0]


def test_two_at_once_do_not_mix(cluster: Cluster) -> None:
    results: dict[int, list[float]] = {}

    def work(number: int) -> None:
        with Client(address(cluster)) as one:
            value = one.upload([float(number)] * 3, (3,))
            for _ in range(10):
                value = one.add(value, value)
            results[number] = one.read(value)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(wire_client.WAIT_SECONDS)
    assert results == {number: [number * 1024.0] * 3 for number in (1, 2, 3)}
