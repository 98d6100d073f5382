"""A worker that begins as a fork of the tests' server is a process as any other."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import worker_forks
import worker_processes
from cluster import Cluster, until

SECONDS = 50.0  # the first fork waits for PyTorch's import


@pytest.fixture(scope="module")
def server() -> Iterator[worker_forks.Server]:
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", worker_forks.VARIABLE)}
    server = worker_forks.Server()
    yield server
    server.end()
    for name, value in before.items():
        if value is not None:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


class Worker:
    """A worker as a session starts it; it waits for its first message until the socket closes."""

    def __init__(self, **settings: str) -> None:
        self.socket, inherited = socket.socketpair()
        path = os.pathsep.join([os.environ["PYTHONPATH"], str(worker_forks.ROOT)])
        command = [sys.executable, "-m", "gt.worker", "--control-fd", str(inherited.fileno())]
        self.process = subprocess.Popen(
            [*command, "--threads", "1", "--id", "0", "--backend", "numpy"],
            pass_fds=[inherited.fileno()],
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path} | settings,
        )
        inherited.close()


def forks(server: worker_forks.Server) -> list[int]:
    """Live processes that the server has forked, the server of a number of threads not counted."""
    return [fork for one in _children(server.process) for fork in _children(one)]


def _children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(word) for task in tasks for word in task.read_text().split()]


def started(server: worker_forks.Server) -> tuple[Worker, int]:
    before = forks(server)
    worker = Worker()
    until(lambda: len(forks(server)) > len(before), SECONDS)
    (fork,) = set(forks(server)) - set(before)
    return worker, fork


def test_it_has_the_command_line_of_a_worker_and_ends_with_its_socket(server):
    worker, fork = started(server)
    assert b"\0gt.worker\0" in worker_processes.command(worker.process.pid)
    worker.socket.close()
    _, said = worker.process.communicate(timeout=SECONDS)
    by_itself = Worker(**{worker_forks.VARIABLE: "off"})
    by_itself.socket.close()
    _, expected = by_itself.process.communicate(timeout=SECONDS)
    assert (worker.process.returncode, said) == (by_itself.process.returncode, expected)
    until(lambda: fork not in forks(server))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_it_ends_by_the_signal_that_ended_the_fork(server, number):
    worker, fork = started(server)
    os.kill(fork, number)
    assert worker.process.wait(timeout=SECONDS) == -number
    assert worker.socket.recv(1) == b""  # nobody else holds the other end
    worker.socket.close()
    worker.process.stderr.close()


def test_the_fork_ends_with_a_killed_process(server):
    worker, fork = started(server)
    worker.process.kill()
    worker.process.wait(timeout=SECONDS)
    until(lambda: fork not in forks(server))
    assert worker.socket.recv(1) == b""
    worker.socket.close()
    worker.process.stderr.close()


def test_a_signal_reaches_the_fork(server):
    worker, fork = started(server)
    worker.process.terminate()
    assert worker.process.wait(timeout=SECONDS) == -signal.SIGTERM
    until(lambda: fork not in forks(server))
    worker.socket.close()
    worker.process.stderr.close()


def test_a_worker_of_a_dispatcher_is_a_fork_that_the_log_names(server):
    before = forks(server)
    with Cluster(1, backend="native") as cluster:
        cluster.wait_for_workers(seconds=SECONDS)
        (fork,) = set(forks(server)) - set(before)
        (worker,) = cluster.workers
        assert worker_forks.number(worker.pid) == fork != worker.pid
        assert f'worker 0 ("worker {fork}") is connected' in cluster.log
        cluster.kill_worker(0)
        until(lambda: fork not in forks(server))
    assert worker_forks.number(worker.pid) == worker.pid  # gone


def test_a_worker_in_another_network_begins_by_itself(server, monkeypatch, tmp_path):
    folder = os.environ[worker_forks.VARIABLE]
    for name in worker_forks.THREADS:
        (tmp_path / name).symlink_to(f"{folder}/{name}")
    (tmp_path / "network").symlink_to("net:[1]")
    monkeypatch.setenv(worker_forks.VARIABLE, str(tmp_path))
    with Cluster(1, backend="native") as cluster:
        cluster.wait_for_workers(seconds=SECONDS)
        assert forks(server) == []


def test_several_workers_of_one_command_begin_by_themselves(server):
    with Cluster(0, backend="native") as cluster:
        cluster.command += ["--count", "1"]
        worker = cluster.add_worker()
        until(lambda: "is connected" in cluster.log, SECONDS)
        assert (forks(server), worker_forks.number(worker.pid)) == ([], worker.pid)


def test_with_settings_of_a_librarys_it_begins_by_itself(server, tmp_path):
    for settings in (
        {"OMP_PROC_BIND": "true"},
        {"PYTHONPATH": f"{os.environ['PYTHONPATH']}:{tmp_path}:{worker_forks.ROOT}"},
    ):
        worker = Worker(**settings)
        until(lambda worker=worker: _has_loaded(worker.process.pid), SECONDS)
        assert forks(server) == []
        worker.socket.close()
        worker.process.communicate(timeout=SECONDS)


def _has_loaded(process: int) -> bool:
    return "_core.abi3.so" in Path(f"/proc/{process}/maps").read_text()


def test_files_that_are_named_exist():
    tests, names = worker_forks.ROOT / "tests", worker_forks.WITH_FORKS + worker_forks.BY_THEMSELVES
    assert [name for name in names if not list(tests.glob(name))] == []


@pytest.mark.parametrize(("name", "expected"), [
    ("tests/surface/test_names.py", True), ("tests/surface/test_errors.py", False),
    ("tests/cluster/test_cancel.py", True), ("tests/cluster/test_processes.py", False),
    ("benchmarks/test_speed.py", False),
])  # fmt: skip
def test_a_file_that_stops_workers_starts_them_itself(monkeypatch, name, expected):
    monkeypatch.setenv(worker_forks.VARIABLE, "folder")
    with worker_forks.Choice().of(worker_forks.ROOT / name):
        assert (worker_forks.VARIABLE in os.environ) == expected
    assert os.environ[worker_forks.VARIABLE] == "folder"
