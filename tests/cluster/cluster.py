"""A dispatcher and workers as processes, by the commands that a person types."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import worker_forks

WAIT_SECONDS = 20.0
TESTS = os.pathsep.join(map(str, sorted(Path(__file__).parent.parent.glob("*/"))))


def until(holds: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    """Return as soon as `holds()`; fail after the deadline."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        time.sleep(0.005)


def of_group(group: int) -> dict[int, str]:
    """The processes of a group that are no zombies, and their names."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                head, _, rest = (entry / "stat").read_text().rpartition(")")
                words = rest.split()
                if int(words[2]) == group and words[0] not in {"Z", "X"}:
                    found[int(entry.name)] = head.partition("(")[2]
    return found


class Cluster:
    """`python -m gt.server -p 0` and some `python -m gt.worker`; all end with the `with` block.

    Args:
        workers: how many to start.
        backend: what executes on them.
        arguments: more words for the server's command.
        leads_group: whether the server leads a group of processes, of which one may follow it.
    """

    def __init__(
        self,
        workers: int = 1,
        *,
        backend: str = "numpy",
        arguments: tuple[str, ...] = (),
        leads_group: bool = False,
    ) -> None:
        server = [sys.executable, "-m", "gt.server", "-p", "0", *arguments]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - ends with us
        self.server = subprocess.Popen(
            server,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=leads_group,
        )
        self.address = self.server.stdout.readline().removeprefix("listening on ").strip()
        host, self.port = self.address.rsplit(":", 1)
        self.command = [sys.executable, "-m", "gt.worker", "--host", host, "-p", self.port]
        self.command += ["--backend", backend, "--threads", "1"]
        self.workers: list[subprocess.Popen[bytes]] = []
        for _ in range(workers):
            self.add_worker()
        self._clients: list[subprocess.Popen[str]] = []

    @property
    def log(self) -> str:
        """The server's standard error so far."""
        log = self._log.fileno()
        # The server writes at a file offset shared with this process, so the offset must not move.
        return os.pread(log, os.fstat(log).st_size, 0).decode("utf-8", "replace")

    def wait_for_workers(self, user: str | None = None, seconds: float = WAIT_SECONDS) -> None:
        """Return when all have joined; with tokens the log calls them by their user."""

        def all_have_joined() -> bool:
            names = [_name(one) for one in self.workers] if user is None else [user]
            return all(f'("{name}") is connected' in self.log for name in names)

        until(all_have_joined, seconds)

    def kill_worker(self, index: int) -> None:
        """End the worker of that index as `kill -9` does."""
        (worker,) = [one for one in self.workers if f'worker {index} ("{_name(one)}")' in self.log]
        worker.kill()
        worker.wait()
        self.workers.remove(worker)

    def add_worker(self) -> subprocess.Popen[bytes]:
        """Start one more."""
        self.workers.append(subprocess.Popen(self.command))
        return self.workers[-1]

    def client(self, code: str, **settings: str) -> "subprocess.Popen[str]":
        """A client program at work; it begins connected and may import the tests' modules."""
        path = os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")])
        self._clients.append(
            subprocess.Popen(
                [sys.executable, "-c", f"import gt\ngt.connect({self.address!r})\n{code}"],
                env=os.environ | {"PYTHONPATH": path} | settings,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return self._clients[-1]

    def run(self, code: str, **settings: str) -> str:
        """Output of a client program that starts connected to the cluster."""
        return result(self.client(code, **settings))

    def stop(self) -> None:
        """End the server as a person does, and everything else with it."""
        for process in (*self._clients, *self.workers, self.server):
            process.terminate()
        for process in (*self._clients, *self.workers, self.server):
            process.communicate(timeout=WAIT_SECONDS)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._log.close()


def _name(worker: "subprocess.Popen[bytes]") -> str:
    """Name by which the server's log calls a worker that has joined without a token."""
    return f"worker {worker_forks.number(worker.pid)}"


def in_groups(worker: "subprocess.Popen[bytes]") -> bool:
    """True where a worker has a thread that Gloo created for a process group."""
    tasks = Path(f"/proc/{worker_forks.number(worker.pid)}/task").glob("*/comm")
    return any(task.read_text().startswith("pt_gloo_runloop") for task in tasks)


def first_line(client: "subprocess.Popen[str]") -> str:
    """Waits for what a client program prints first."""
    line = client.stdout.readline()
    assert line, client.stderr.read()
    return line


def result(client: "subprocess.Popen[str]", seconds: float = WAIT_SECONDS) -> str:
    """Output of a client program, which must have succeeded."""
    printed, errors = client.communicate(timeout=seconds)
    assert client.returncode == 0, errors
    return printed
