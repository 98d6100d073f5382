"""Several programs on one cluster of real processes: they share it, and nothing of each other's.

What an operator computes is tested elsewhere; here, that it does so in company, and what is left
when somebody dies.
"""

import contextlib
import json
import re
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import classifier
import numpy as np
import pytest
from cluster import Cluster, first_line, result, until

import gt

torch = pytest.importorskip("torch")

STEPS = 15
TRAIN = (
    "import classifier, json\nprint(json.dumps(classifier.losses(gt, {seed}, {steps})), flush=True)"
)
LARGE = 1_000_000
NOTICED_SECONDS = 10.0  # of a death: ten times what it takes on a busy machine


def expected(seed: int, steps: int = STEPS) -> list[float]:
    return classifier.losses(torch, seed, steps)


def trained(printed: str, seed: int) -> None:
    np.testing.assert_allclose(json.loads(printed), expected(seed), rtol=1e-9)


def bytes_held() -> int:
    return sum(worker["bytes"] for worker in gt.debug.get_worker_stats())


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """Two workers that every test leaves as it found them."""
    with Cluster(2) as cluster:
        cluster.wait_for_workers()
        yield cluster


@pytest.fixture
def fresh() -> Iterator[Cluster]:
    """Two workers for a test that kills."""
    with Cluster(2) as cluster:
        cluster.wait_for_workers()
        yield cluster
        gt.disconnect()


@pytest.fixture
def connected(shared: Cluster) -> Iterator[Cluster]:
    """This process is a client, too."""
    gt.connect(shared.address)
    yield shared
    gt.disconnect()


def test_three_clients_train_at_once(shared: Cluster) -> None:
    clients = [shared.client(TRAIN.format(seed=seed, steps=STEPS)) for seed in (1, 2, 3)]
    for seed, client in zip((1, 2, 3), clients, strict=True):
        trained(result(client), seed)


def test_two_workers_with_torch() -> None:
    with Cluster(2, backend="pytorch") as cluster:
        clients = [cluster.client(TRAIN.format(seed=seed, steps=STEPS)) for seed in (1, 2)]
        for seed, client in zip((1, 2), clients, strict=True):
            trained(result(client), seed)


def test_what_a_killed_client_held_is_freed(connected: Cluster) -> None:
    before = bytes_held()
    loop = TRAIN.format(seed=5, steps=3) + "\nwhile True: classifier.losses(gt, 5, 3)"
    victim = connected.client(f"x = gt.zeros({LARGE}) + 1\n{loop}")
    other = connected.client(TRAIN.format(seed=6, steps=STEPS))
    mine = gt.arange(10)
    first_line(victim)
    assert bytes_held() >= before + 4 * LARGE
    victim.kill()
    trained(result(other), 6)
    until(lambda: bytes_held() <= before + 10 * 8)
    assert mine.sum().item() == 45
    trained(connected.run(TRAIN.format(seed=7, steps=STEPS)), 7)


def test_an_idle_client_keeps_nothing_large_that_it_dropped(connected: Cluster) -> None:
    """Large dropped values are freed at once; small ones go with the next instruction."""
    before = bytes_held()
    code = f"""
        import sys
        x, y = gt.zeros({LARGE}) + 1, gt.zeros(10) + 1
        print(x.sum().item() + y.sum().item(), flush=True)
        sys.stdin.readline()
        del x, y
        print("dropped", flush=True)
        sys.stdin.readline()
        print(gt.ones(1).item())
    """
    client = connected.client(textwrap.dedent(code))
    first_line(client)
    assert bytes_held() >= before + 4 * LARGE
    client.stdin.write("\n")
    client.stdin.flush()
    assert first_line(client).strip() == "dropped"
    until(lambda: bytes_held() <= before + 1024)
    assert result(client).strip() == "1.0"


def test_what_a_killed_worker_held_has_failed(fresh: Cluster) -> None:
    # A session's tensors are made on the worker with the fewest: this one's on 0, the other's on 1.
    gt.connect(fresh.address)
    lost = [gt.ones(3), gt.arange(4)]
    assert lost[0].sum().item() == 3
    code = "x = gt.arange(5)\nprint(x.sum().item(), flush=True)\ninput()\nprint((x * 2).tolist())"
    other = fresh.client("import sys\n" + code.replace("input()", "sys.stdin.readline()"))
    first_line(other)
    busy = [worker["values"] > 0 for worker in gt.debug.get_worker_stats()]
    assert busy == [True, True]
    died = time.monotonic()
    fresh.kill_worker(0)
    until(lambda: "worker 0 is gone" in fresh.log, NOTICED_SECONDS)
    for tensor in (*lost, lost[1] + 1):
        with pytest.raises(
            gt.errors.WorkerError, match=r"worker 0 is gone .* and held this"
        ) as error:
            tensor.tolist()
        assert "test_cluster.py" in str(error.value)
    assert time.monotonic() - died < NOTICED_SECONDS
    assert gt.ones(3).sum().item() == 3  # on the worker that is left
    assert result(other).strip() == "[0, 2, 4, 6, 8]"
    fresh.kill_worker(1)
    until(lambda: "worker 1 is gone" in fresh.log)
    with pytest.raises(gt.errors.WorkerError, match="no worker is connected to the dispatcher"):
        gt.ones(3).tolist()
    fresh.add_worker()
    fresh.wait_for_workers()
    assert gt.ones(3).sum().item() == 3
    assert len(gt.debug.get_worker_stats()) == 1


def test_layouts_are_over_the_workers_that_are_left(fresh: Cluster) -> None:
    fresh.add_worker()
    fresh.wait_for_workers()
    gt.connect(fresh.address)
    fresh.kill_worker(1)
    until(lambda: "worker 1 is gone" in fresh.log)
    model = gt.parallelize(gt.nn.Linear(3, 4), {"**": "shard(0)"})
    cut = gt.nn.ColumnLinear(3, 4)
    for one in (model.weight, cut.weight, gt.distributed.scatter(gt.ones(4))):
        assert repr(one.layout) == "shard(0)@[0,2]"
    assert gt.distributed.new_group().mesh.ranks == (0, 2)
    assert cut(model.weight).sum().isfinite().item()


@pytest.mark.filterwarnings("ignore::gt.UnreadFailureWarning")  # of the sum, if it was not read
def test_a_worker_killed_in_the_middle_of_collectives(fresh: Cluster) -> None:
    gt.connect(fresh.address)
    shard = gt.distribute(gt.tensor(classifier.numbers(1, 64, 64)), dim=0)
    copy = gt.distribute(gt.tensor(classifier.numbers(2, 64, 64)))
    product = shard.T @ shard  # [k, b] x [b, k]: summed over both workers
    assert product.sum().item() != 0
    total = copy
    for _ in range(200):
        total = total + shard.T @ shard
    fresh.kill_worker(1)
    died = time.monotonic()
    for tensor in (shard, shard.sum(), shard + copy):
        with pytest.raises(gt.errors.WorkerError, match="worker 1 is gone"):
            tensor.tolist()
    with contextlib.suppress(gt.errors.WorkerError):  # summed in time or not, but no hang
        total.sum().item()
    np.testing.assert_array_equal(copy.numpy(), classifier.numbers(2, 64, 64))
    assert time.monotonic() - died < NOTICED_SECONDS
    again = gt.distribute(gt.ones(5), dim=0)  # on those that are left
    assert again.sum().item() == 5
    fresh.add_worker()
    fresh.wait_for_workers()
    assert classifier.losses(gt, 3, 3, spread=True) == pytest.approx(expected(3, 3), rel=1e-6)


def test_a_killed_client_in_the_middle_of_collectives(fresh: Cluster) -> None:
    gt.connect(fresh.address)
    loop = "while True: classifier.losses(gt, 5, 3, spread=True)"
    victim = fresh.client(
        f"import classifier\nclassifier.losses(gt, 5, 3)\nprint(1, flush=True)\n{loop}"
    )
    first_line(victim)
    for _ in range(3):
        assert classifier.losses(gt, 3, 3, spread=True) == pytest.approx(expected(3, 3), rel=1e-6)
    victim.kill()
    assert classifier.losses(gt, 3, 9, spread=True) == pytest.approx(expected(3, 9), rel=1e-6)
    until(lambda: bytes_held() == 0)


def test_a_stopped_dispatcher_is_one_error(fresh: Cluster) -> None:
    gt.connect(fresh.address)
    value = gt.ones(2)
    assert value.tolist() == [1, 1]
    fresh.stop()
    with pytest.raises(gt.errors.ConnectionLost, match="the dispatcher stops"):
        value.tolist()
    with pytest.raises(gt.errors.ConnectionLost, match="the dispatcher stops"):
        (value + 1).tolist()


def test_by_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with Cluster(1, arguments=("--unix", path)):
        gt.connect(f"unix:{path}")
        try:
            assert classifier.losses(gt, 4, 3) == pytest.approx(expected(4, 3), rel=1e-9)
        finally:
            gt.disconnect()
    assert not Path(path).exists()


def test_tensors_of_two_sessions_do_not_mix(
    shared: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GT_BACKEND", "numpy")
    gt.disconnect()
    embedded = gt.ones(2)
    gt.connect(shared.address)
    served = gt.ones(2)
    with pytest.raises(gt.Error, match="session"):
        _ = served + embedded
    with pytest.raises(gt.Error, match="session"):
        embedded.tolist()
    assert served.tolist() == [1, 1]
    gt.disconnect()
    with pytest.raises(gt.Error, match="session"):
        served.tolist()
    assert gt.ones(2).tolist() == [1, 1]  # embedded again
    gt.disconnect()


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_spread_over_two_workers_as_on_one(connected: Cluster, rows: int) -> None:
    array = classifier.numbers(rows, rows, 3)
    whole, other = torch.tensor(array), torch.tensor(classifier.numbers(9, 3, 2))
    spread, small = gt.distribute(gt.tensor(array), dim=0), gt.tensor(other.numpy())
    programs = {
        "elementwise": lambda x, w: (x * 2 - x).exp() + x[0],
        "matmul": lambda x, w: (x @ w).relu(),
        "inner dimension": lambda x, w: x.T @ (x @ w),
        "sum": lambda x, w: x.sum(),
        "sum over the cut": lambda x, w: x.sum(0),
        "sum along the cut": lambda x, w: x.sum(1),
        "mean": lambda x, w: x.mean(0),
        "largest": lambda x, w: x.max(),
        "smallest over the cut": lambda x, w: x.amin(0),
        "place of the largest": lambda x, w: x.argmax(0),
        "softmax along": lambda x, w: x.softmax(1),
        "softmax over the cut": lambda x, w: x.softmax(0),
        "view": lambda x, w: x.reshape(-1)[1:] * 3,
        "sorted": lambda x, w: x.cumsum(0),
        "picked": lambda x, w: x[rows // 2],
        "transposed": lambda x, w: x.T,
    }
    for name, program in programs.items():
        actual, right = program(spread, small).numpy(), program(whole, other).numpy()
        assert actual.dtype == right.dtype, name
        np.testing.assert_allclose(actual, right, rtol=1e-12, err_msg=name)
    again = gt.distribute(gt.distribute(spread, dim=1))
    np.testing.assert_array_equal(again.numpy(), array)


def test_training_on_a_spread_batch(connected: Cluster) -> None:
    losses = classifier.losses(gt, 8, STEPS, spread=True)
    np.testing.assert_allclose(losses, expected(8), rtol=1e-6)
    np.testing.assert_allclose(losses, classifier.losses(gt, 8, STEPS), rtol=1e-9)


def test_no_payload_between_workers_passes_the_dispatcher(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Cluster(2, arguments=("--instruction-log", str(path))) as cluster:
        cluster.wait_for_workers()
        gt.connect(cluster.address)
        x = gt.distribute(gt.arange(LARGE), dim=0)
        whole = gt.distribute(x)
        assert (x + whole).sum().item() == LARGE * (LARGE - 1)
        gt.disconnect()
        cluster.server.terminate()  # before the workers: it tells of those that are there
        cluster.server.wait(timeout=20)
        cluster.stop()
        moved = re.findall(r" moved=(\d+)", path.read_text(encoding="utf-8"))
        assert sum(map(int, moved)) >= 8 * LARGE
        ways = [line for line in cluster.log.splitlines() if ": received " in line]
        assert len(ways) == 2, cluster.log
        for line in ways:
            came = line.split(": received ")[1].split()[0]
            assert int(came) < 10_000, line
