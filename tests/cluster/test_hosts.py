"""Workers that share no memory with each other, as workers of several hosts do."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import classifier
import numpy as np
import pytest
from cluster import TESTS, Cluster, in_groups, result, until
from cutting_proxy import CuttingProxy
from resetting_proxy import ResettingProxies

import gt

torch = pytest.importorskip("torch")

STEPS = 5
HOSTS_SECONDS = 50.0  # workers of torch have to start meanwhile


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
    shard = gt.distribute(gt.tensor(classifier.numbers(1, 64, 64)), dim=0)
    total = gt.distribute(gt.tensor(classifier.numbers(2, 64, 64)))
    assert (shard.T @ shard).sum().item() != 0
    for _ in range(200):
        total = total + shard.T @ shard
    index = len(cluster.workers) - 1
    cluster.kill_worker(index)
    with pytest.raises(gt.errors.WorkerError, match=f"worker {index} is gone"):
        shard.tolist()
    with contextlib.suppress(gt.errors.WorkerError):  # summed in time or not, but no hang
        total.sum().item()
    cluster.add_worker()
    cluster.wait_for_workers()
    expected = classifier.losses(torch, 3, 3)
    assert classifier.losses(gt, 3, 3, spread=True) == pytest.approx(expected, rel=1e-6)


def test_dropped_links_of_workers_are_resumed_with_all_values() -> None:
    with Cluster(0) as running, CuttingProxy(("127.0.0.1", int(running.port))) as proxy:
        port = proxy.address.rsplit(":", 1)[1]
        running.command[running.command.index("-p") + 1] = port
        running.command.append("--tcp")
        for _ in range(2):
            running.add_worker()
        running.wait_for_workers()
        gt.connect(running.address)
        array = classifier.numbers(2, 600, 300)
        kept = gt.distribute(gt.tensor(array), dim=0)
        for drop in range(3):
            total = kept
            for _ in range(100):
                total = total + 1
            gram = kept.T @ kept  # summed over the workers
            large = (kept + drop).reshape(-1)
            proxy.cut()  # with much of that in flight
            np.testing.assert_array_equal(large.numpy(), (array + drop).reshape(-1))
            np.testing.assert_allclose(total.numpy(), array + 100, rtol=1e-12)
            np.testing.assert_allclose(gram.numpy(), array.T @ array, rtol=1e-9)
            until(lambda seen=drop: running.log.count("is resumed") >= 2 * (seen + 1))
        expected = classifier.losses(torch, 3, 3)
        assert classifier.losses(gt, 3, 3, spread=True) == pytest.approx(expected, rel=1e-6)
        gt.disconnect()
        assert " WARN " not in running.log, running.log


# More than two chunks, so that there is always one that arrives whole.
RESET_BYTES = 700_001


def test_nothing_is_lost_when_links_between_workers_are_reset() -> None:
    array = classifier.numbers(1, 3001, 300)
    with (
        Cluster(0) as running,
        ResettingProxies(0) as between,
        CuttingProxy(("127.0.0.1", int(running.port)), between.alter) as proxy,
    ):
        running.command[running.command.index("-p") + 1] = proxy.address.rsplit(":", 1)[1]
        running.command.append("--tcp")
        for _ in range(3):
            running.add_worker()
        running.wait_for_workers()
        gt.connect(running.address)
        expected = classifier.losses(gt, 3, STEPS, spread=True)
        between.bytes_max = RESET_BYTES
        for _ in range(3):
            cut = gt.distribute(gt.tensor(array), dim=0)
            seen = between.resets
            np.testing.assert_array_equal(gt.distribute(cut, dim=1).numpy(), array)
            np.testing.assert_array_equal((cut + cut).numpy(), array + array)
            np.testing.assert_allclose((cut.T @ cut).numpy(), array.T @ array, rtol=1e-9)
            assert between.resets > seen
        between.bytes_max = 0
        for _ in range(5):
            total = gt.distribute(gt.tensor(array), dim=0)
            between.reset()  # idle links, and some that are not
            total = total.T @ total
            between.reset()  # with that in flight
            np.testing.assert_allclose(total.numpy(), array.T @ array, rtol=1e-9)
        assert classifier.losses(gt, 3, STEPS, spread=True) == expected
        gt.disconnect()
        assert " WARN " not in running.log, running.log


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


class TwoHosts:
    """A dispatcher and two workers on one host, one more worker and a client on the other.

    Args:
        networks: the namespaces.
        folder: for the file of tokens.
        worker: more words for a worker's command.
    """

    def __init__(self, networks: tuple[str, str], folder: Path, *worker: str) -> None:
        tokens = folder / "tokens"
        tokens.write_text("alice open-sesame-0123456789\n")
        tokens.chmod(0o600)
        here, self.there = (["ip", "netns", "exec", name, sys.executable] for name in networks)
        self.environment = os.environ | {
            "GT_TOKEN": "open-sesame-0123456789",
            "PYTHONPATH": os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")]),
        }
        host = ["--host", "10.213.0.1", "-p"]
        command = [*here, "-m", "gt.server", *host, "0", "--token-file", str(tokens)]
        self.processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True)]
        port = self.processes[0].stdout.readline().rsplit(":", 1)[1].strip()
        self.address = f"10.213.0.1:{port}"
        command = ["-m", "gt.worker", *host, port, "--threads", "1", *worker]
        self.workers = [
            subprocess.Popen([*namespace, *command], env=self.environment)
            for namespace in (here, here, self.there)
        ]
        self.processes += self.workers

    def run(self, code: str) -> str:
        """Output of a client that starts when all workers have joined."""
        begin = f"import gt\ngt.connect('{self.address}')\n"
        begin += "while len(gt.debug.get_worker_stats()) < 3: pass\n"
        client = subprocess.Popen(
            [*self.there, "-c", begin + code],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(client)
        return result(client, HOSTS_SECONDS)

    def __enter__(self) -> "TwoHosts":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.communicate(timeout=20)


def test_two_hosts_with_a_cable_between_them(two_networks: tuple[str, str], tmp_path: Path) -> None:
    code = """
x = gt.distribute(gt.arange(300_000), dim=0)
print((x + 1).sum().item(), (x * 2).tolist()[-1])
"""
    with TwoHosts(two_networks, tmp_path, "--backend", "numpy") as hosts:
        assert hosts.run(code) == "45000150000 599998\n"


def test_two_hosts_meet_in_process_groups(two_networks: tuple[str, str], tmp_path: Path) -> None:
    words = ["--process-groups", "gloo", "--trusted-network", "10.213.0.0/24"]
    code = """
import classifier
import numpy as np
print(classifier.losses(gt, 3, 5, spread=True))
array = classifier.numbers(1, 60, 40)
cut = gt.distribute(gt.tensor(array), dim=0)
np.testing.assert_allclose((cut.T @ cut).numpy(), array.T @ array, rtol=1e-9)
np.testing.assert_array_equal(gt.distribute(cut, dim=1).numpy(), array)
numbers = gt.distribute(gt.tensor([3, 2, 1, 0, 4, 5]), dim=0)
try:
    (60 // numbers).sum().item()
except gt.Error as error:
    assert "zero" in str(error).lower(), error
else:
    raise AssertionError("60 // 0 is a number")
print((numbers * 2).sum().item())
"""
    with TwoHosts(two_networks, tmp_path, "--backend", "pytorch", *words) as hosts:
        losses, doubled = hosts.run(code).splitlines()
        assert json.loads(losses) == pytest.approx(classifier.losses(torch, 3, 5), rel=1e-6)
        assert doubled == "30"
        for worker in hosts.workers:
            assert in_groups(worker), "the collectives went by bytes"
