"""A dispatcher with a standby is killed while programs train: they go on, and get the same bits."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cluster import Cluster, of_group, result, until

from gt import _core

STANDBY = "gt-standby"
TAKEOVER = "goes on: nothing was lost"
CLIENTS = 3
KILLS = 6
SECONDS = 50.0
# Uploads and reads go through slabs (a batch has 24 KB), and draws are counted by the session.
TRAINING = """
import hashlib, sys
import numpy as np
from gt import nn, optim

gt.manual_seed({seed})
model = nn.Sequential(nn.Linear(60, 32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 1))
optimizer = optim.AdamW(model.parameters(), lr=0.01)
batches = np.random.default_rng({seed}).standard_normal((8, 100, 60), dtype=np.float32)
digest = hashlib.sha256()
print("ready", flush=True)
sys.stdin.readline()
for step in range({steps}):
    x = gt.tensor(batches[step % 8])
    optimizer.zero_grad()
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        digest.update(np.float32(loss.item()).tobytes())
        digest.update((x * 2).numpy().tobytes())
for parameter in model.parameters():
    digest.update(parameter.detach().numpy().tobytes())
print(digest.hexdigest())
"""


class StandbyCluster(Cluster):
    """A cluster whose dispatcher leads a group of processes."""

    def both(self) -> tuple[int, int]:
        """The dispatcher and its standby, as soon as there is one of each."""
        pair: list[int] = []

        def are_there() -> bool:
            waiting = {pid for pid, name in of_group(self.server.pid).items() if name == STANDBY}
            serving = of_group(self.server.pid).keys() - waiting
            pair[:] = [*serving, *waiting]
            return len(serving) == len(waiting) == 1

        until(are_there)
        return pair[0], pair[1]

    def kill(self) -> None:
        """Kills the dispatcher; returns when a standby serves, with a standby of its own."""
        before = self.log.count(TAKEOVER)
        dispatcher, _ = self.both()
        os.kill(dispatcher, signal.SIGKILL)
        self.server.poll()
        until(lambda: self.log.count(TAKEOVER) > before)

    def stop(self) -> None:
        """Ends whatever serves, as a person does who finds it in the list of processes."""
        dispatcher, _ = self.both()
        os.kill(dispatcher, signal.SIGTERM)
        super().stop()
        until(lambda: not of_group(self.server.pid))


@contextmanager
def running(workers: int = 2, *arguments: str, by_tcp: bool = False) -> Iterator[StandbyCluster]:
    """A cluster whose processes are all ended, however the test ends."""
    cluster = StandbyCluster(0, arguments=("--standby", *arguments), leads_group=True)
    if by_tcp:
        cluster.command.append("--tcp")
    try:
        with cluster:
            for _ in range(workers):
                cluster.add_worker()
            # A program hears of a worker when the standby has it.
            connect = f"gt.connect({cluster.address!r}, workers={workers}, wait=20)"
            cluster.run(f"gt.disconnect()\n{connect}")
            yield cluster
    finally:
        with suppress(ProcessLookupError):
            os.killpg(cluster.server.pid, signal.SIGKILL)


# Passes through the journal more than once, and is compared where it was made.
UPLOADS = """
import numpy as np

numbers = np.random.default_rng(3)
print("ready", flush=True)
sys.stdin.readline()
for step in range(6):
    values = numbers.standard_normal((1200, 4000), dtype=np.float32)
    x = gt.tensor(values)
    assert np.array_equal(x.numpy(), values), step
    assert np.array_equal((x * 2)[::7].numpy(), values[::7] * 2), step
print("equal")
"""


def train(cluster: Cluster, steps: int, **settings: str) -> "list[subprocess.Popen[str]]":
    """Programs that are about to train, each in its own process."""
    code = [TRAINING.format(seed=seed, steps=steps) for seed in range(CLIENTS)]
    clients = [cluster.client(text, **settings) for text in code]
    for client in clients:
        line = client.stdout.readline()
        assert line == "ready\n", client.stderr.read()
    return clients


def begin(clients: "list[subprocess.Popen[str]]") -> None:
    for client in clients:
        client.stdin.write("\n")
        client.stdin.flush()


def digests(clients: "list[subprocess.Popen[str]]") -> list[str]:
    return [result(client, SECONDS) for client in clients]


def kill_while_they_train(
    cluster: StandbyCluster, clients: "list[subprocess.Popen[str]]", seed: int, pause: float
) -> int:
    """Kills the dispatcher at random moments, as long as a program trains; returns how often."""
    moments = random.Random(seed)
    for kills in range(KILLS):
        time.sleep(moments.uniform(0.0, pause))
        if all(client.poll() is not None for client in clients):
            assert kills > 0, "all had ended before the first kill"
            return kills
        cluster.kill()
    return KILLS


@pytest.mark.parametrize("sharded", ["0", "1"])
def test_programs_train_on_to_the_same_bits_while_the_dispatcher_is_killed(sharded: str) -> None:
    """A kill comes at any place of a step; sharded, at any place of a collective."""
    steps = 300
    with running() as cluster:
        clients = train(cluster, steps, GT_AUTO_SHARD=sharded)
        begin(clients)
        expected = digests(clients)
        assert len(set(expected)) == CLIENTS
        clients = train(cluster, steps, GT_AUTO_SHARD=sharded)
        begin(clients)
        seed = time.time_ns()
        kills = kill_while_they_train(cluster, clients, seed, 0.1)
        assert digests(clients) == expected, f"seed {seed}\n{cluster.log}"
        assert cluster.log.count(TAKEOVER) == kills


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_programs_and_workers_by_tcp_train_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_encrypted: bool
) -> None:
    """Each of them resumes its link, with tokens and TLS too, and a frame counts once."""
    arguments: list[str] = []
    if is_encrypted:
        assert _core.write_certificates(str(tmp_path), ["localhost", "127.0.0.1"], 1)
        (tmp_path / "tokens").write_text("anna 0123456789abcdef\n")
        arguments = ["--token-file", str(tmp_path / "tokens")]
        arguments += ["--tls-cert", str(tmp_path / "server.pem")]
        arguments += ["--tls-key", str(tmp_path / "server-key.pem")]
        monkeypatch.setenv("GT_TLS_CA", str(tmp_path / "ca.pem"))
        monkeypatch.setenv("GT_TOKEN", "0123456789abcdef")
    settings = {"GT_NO_RING": "1", "GT_AUTO_SHARD": "0" if is_encrypted else "1"}
    steps = 200
    with running(2, *arguments, by_tcp=True) as cluster:
        clients = train(cluster, steps, **settings)
        begin(clients)
        expected = digests(clients)
        clients = train(cluster, steps, **settings)
        begin(clients)
        seed = time.time_ns()
        kills = kill_while_they_train(cluster, clients, seed, 0.2)
        assert digests(clients) == expected, f"seed {seed}\n{cluster.log}"
        assert cluster.log.count(TAKEOVER) == kills
        way = "TLS" if is_encrypted else "TCP"
        assert cluster.log.count(f"is connected by {way}") == 2 + 2 * CLIENTS
        assert "worker 1 is resumed" in cluster.log


@pytest.mark.parametrize("by_tcp", [False, True])
def test_uploads_and_reads_of_more_than_the_journal_has(*, by_tcp: bool) -> None:
    with running(by_tcp=by_tcp) as cluster:
        client = cluster.client("import sys\n" + UPLOADS, GT_NO_RING=str(int(by_tcp)))
        assert client.stdout.readline() == "ready\n", client.stderr.read()
        begin([client])
        for _ in range(4):
            time.sleep(0.1)
            cluster.kill()
        assert result(client, SECONDS) == "equal\n"


def test_a_new_program_and_a_new_worker_find_the_standby() -> None:
    with running(1) as cluster:
        cluster.kill()
        cluster.add_worker()
        cluster.wait_for_workers()
        code = "x = gt.arange(8.0)\nprint(float((x + x).sum()))"
        assert cluster.run(code) == "56.0\n"


def test_what_a_program_left_is_found_by_the_next_one() -> None:
    with running(1) as cluster:
        attach = f"gt.disconnect()\ngt.connect({cluster.address!r}, session='exp1')\n"
        cluster.run(attach + "gt.publish(gt.arange(4.0), 'w')")
        cluster.kill()
        assert cluster.run(attach + "print(gt.session['w'].tolist())") == "[0.0, 1.0, 2.0, 3.0]\n"


def test_a_lost_worker_is_noticed_by_the_standby() -> None:
    with running() as cluster:
        cluster.kill()
        cluster.kill_worker(1)
        until(lambda: "worker 1 is gone" in cluster.log)
        assert cluster.run("print(gt.ones(3).sum().item())") == "3.0\n"


def test_who_does_not_come_back_is_gone_after_its_time() -> None:
    code = "x = gt.ones(3)\nprint(x.sum().item(), flush=True)\ninput()\nprint(x.sum().item())"
    with running(1, "--resume-seconds", "0.5") as cluster:
        client = cluster.client(code, GT_NO_RING="1")
        assert client.stdout.readline() == "3.0\n"
        client.send_signal(signal.SIGSTOP)
        cluster.kill()
        count = "print(sum(one['values'] for one in gt.debug.get_worker_stats()))"
        until(lambda: cluster.run(count) == "0\n")
        client.send_signal(signal.SIGCONT)
        printed, errors = client.communicate("\n", timeout=SECONDS)
        assert (printed, "ConnectionLost" in errors) == ("", True), errors


def test_an_end_leaves_nothing_and_what_cannot_go_on_is_refused() -> None:
    with running(1) as cluster:
        group = cluster.server.pid
        cluster.both()
    assert not of_group(group)
    for words in (
        ["--instruction-log", "x"],
        ["--prices", "x", "--probe"],
    ):
        command = [sys.executable, "-m", "gt.server", "-p", "0", "--standby", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 2, done.stderr
        assert "--standby does not go with --" in done.stderr


def test_grants_borrowed_values_and_new_layouts_are_the_standbys_too() -> None:
    with running(1) as cluster:
        named = f"gt.disconnect()\ngt.connect({cluster.address!r}, session='train', workers=1)\n"
        owner = cluster.client(
            named
            + """
w = gt.distribute(gt.arange(8.0), dim=0)
gt.publish(w, "w")
gt.grant("w")
print("in", flush=True)
input()
gt.synchronize()
moved = gt.rebalance()
print("moved", moved, flush=True)
input()
print(gt.session["w"].layout, (w + 0).layout, (w + 0).tolist() == list(range(8)))
"""
        )
        assert owner.stdout.readline() == "in\n"
        reader = cluster.client(
            "w = gt.session('train')['w']\nprint('in', flush=True)\ninput()\n"
            "print((w + 1).sum().item(), gt.session('train')['w'].sum().item())"
        )
        assert reader.stdout.readline() == "in\n"
        cluster.kill()
        cluster.add_worker()
        cluster.wait_for_workers()
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert owner.stdout.readline() == "moved 2\n"
        cluster.kill()
        assert reader.communicate("\n", timeout=30)[0] == "36.0 28.0\n"
        printed, errors = owner.communicate("\n", timeout=30)
        assert printed == "shard(0)@[0,1] shard(0)@[0,1] True\n", errors
