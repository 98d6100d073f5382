"""Workers that share no memory with each other, as workers of several hosts do."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import classifier
import numpy as np
import pytest
from cluster import Cluster, result

import gt

torch = pytest.importorskip("torch")

STEPS = 5


@pytest.fixture(params=["TCP only", "TCP and slabs"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(0) as running:
        if request.param == "TCP and slabs":
            running.add_worker()
            running.add_worker()
        running.command.append("--tcp")
        running.add_worker()
        running.add_worker()
        running.wait_for_workers()
        yield running
        gt.disconnect()


def test_a_tensor_over_workers_of_several_hosts(cluster: Cluster) -> None:
    gt.connect(cluster.address)
    expected = classifier.losses(torch, 3, STEPS)
    assert classifier.losses(gt, 3, STEPS, spread=True) == pytest.approx(expected, rel=1e-6)
    array = classifier.numbers(1, 1000, 700)  # more than queues and sockets hold
    spread = gt.distribute(gt.tensor(array), dim=0)
    np.testing.assert_array_equal((spread + spread).numpy(), array + array)
    np.testing.assert_allclose((spread.T @ spread).numpy(), array.T @ array, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::gt.UnreadFailureWarning")  # of the sum, if it was not read
def test_a_worker_of_another_host_is_killed(cluster: Cluster) -> None:
    gt.connect(cluster.address)
    piece = gt.distribute(gt.tensor(classifier.numbers(1, 64, 64)), dim=0)
    total = gt.distribute(gt.tensor(classifier.numbers(2, 64, 64)))
    assert (piece.T @ piece).sum().item() != 0
    for _ in range(200):
        total = total + piece.T @ piece
    index = len(cluster.workers) - 1
    cluster.kill_worker(index)
    with pytest.raises(gt.errors.WorkerError, match=f"worker {index} is gone"):
        piece.tolist()
    with contextlib.suppress(gt.errors.WorkerError):  # summed in time or not, but no hang
        total.sum().item()
    cluster.add_worker()
    cluster.wait_for_workers()
    expected = classifier.losses(torch, 3, 3)
    assert classifier.losses(gt, 3, 3, spread=True) == pytest.approx(expected, rel=1e-6)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def two_networks() -> Iterator[tuple[str, str]]:
    """Names of two network namespaces, each one end of a cable: 10.213.0.1 and 10.213.0.2."""
    names = (f"gt{os.getpid()}a", f"gt{os.getpid()}b")
    cable = (f"gtv{os.getpid()}a", f"gtv{os.getpid()}b")
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` here to make network namespaces with")
    try:
        _ip("netns", "add", names[0])
    except subprocess.CalledProcessError:
        pytest.skip("network namespaces are not permitted here")
    try:
        _ip("netns", "add", names[1])
        _ip("link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
        for place, (name, end) in enumerate(zip(names, cable, strict=True), 1):
            _ip("link", "set", end, "netns", name)
            _ip("-n", name, "addr", "add", f"10.213.0.{place}/24", "dev", end)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", end, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def test_two_hosts_with_a_cable_between_them(two_networks: tuple[str, str], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("alice open-sesame-0123456789\n")
    tokens.chmod(0o600)
    here, there = (["ip", "netns", "exec", name, sys.executable] for name in two_networks)
    environment = os.environ | {"GT_TOKEN": "open-sesame-0123456789"}
    host = ["--host", "10.213.0.1", "-p"]
    command = [*here, "-m", "gt.server", *host, "0", "--token-file", str(tokens)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True)]
    try:
        port = processes[0].stdout.readline().rsplit(":", 1)[1].strip()
        worker = ["-m", "gt.worker", *host, port, "--backend", "numpy", "--threads", "1"]
        processes += [
            subprocess.Popen([*namespace, *worker], env=environment)
            for namespace in (here, here, there)
        ]
        code = f"""
import gt
gt.connect('10.213.0.1:{port}')
while len(gt.debug.get_worker_stats()) < 3: pass
x = gt.distribute(gt.arange(300_000), dim=0)
print(len(gt.debug.get_worker_stats()), (x + 1).sum().item(), (x * 2).tolist()[-1])
"""
        client = subprocess.Popen(
            [*there, "-c", code],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(client)
        assert result(client) == "3 45000150000 599998\n"
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.communicate(timeout=20)
