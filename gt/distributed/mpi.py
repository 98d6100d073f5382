"""One program under mpirun: rank 0 runs it, with dispatcher and worker 0; the others are workers.

`init_process_group("mpi")` calls `join`. On one host the ranks find each other by a Unix socket in
a folder of the user's own, on several by MASTER_ADDR, MASTER_PORT and GT_TOKEN. No library of MPI
is loaded: messages go between GT's own processes.
"""

from __future__ import annotations

import atexit
import os
import pathlib
import socket
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from gt import config
from gt.config import Rank
from gt.errors import ConfigError, NoWorker
from gt.sessions.session import connect, disconnect, init, is_connected

__all__ = ["join"]

WAIT_SECONDS = 60.0  # for the ranks of a large job on a slow file system
POLL_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class _Rendezvous:
    """Address of the dispatcher for the processes of one mpirun, as words of their commands."""

    server: list[str]
    worker: list[str]
    client: str
    socket: tuple[str, int] | str


def join() -> None:
    """Take the part that mpirun has for this process; without mpirun, start the workers.

    Rank 0 returns when a worker for each rank has joined. The other ranks never return: their
    processes become workers, and end with the program of rank 0.

    Raises:
        ConfigError: mpirun uses several hosts and a variable that they need to meet is missing.
        NoWorker: Some ranks have not joined within a minute.
    """
    place = config.mpi_rank()
    if place is None or is_connected():
        init()
    elif place.rank == 0:
        _lead(place, _rendezvous(place))
    else:
        _serve(place, _rendezvous(place))


def _rendezvous(place: Rank) -> _Rendezvous:
    if place.local_size >= place.size:
        path = str(_private_folder() / f"mpi-{place.job}")
        return _Rendezvous(
            server=["--unix", path], worker=["--unix", path], client=f"unix:{path}", socket=path
        )
    if place.master is None or config.token() is None:
        raise ConfigError(
            "init_process_group('mpi'): mpirun uses several hosts, which meet by MASTER_ADDR (the "
            "host of rank 0), MASTER_PORT and GT_TOKEN: mpirun -x MASTER_ADDR -x MASTER_PORT -x "
            "GT_TOKEN"
        )
    host, port = place.master
    return _Rendezvous(
        server=["--host", "0.0.0.0", "-p", str(port)],  # noqa: S104 - who has the token may join
        worker=["--host", host, "-p", str(port)],
        client=f"127.0.0.1:{port}",
        socket=place.master,
    )


def _private_folder() -> pathlib.Path:
    """A folder with a path short enough for sockets, in which no other user can put a dispatcher.

    Raises:
        ConfigError: Another user owns the folder.
    """
    folder = pathlib.Path(tempfile.gettempdir()) / f"gt-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise ConfigError(f"{folder}: not a folder that only this user may use")
    return folder


def _lead(place: Rank, rendezvous: _Rendezvous) -> None:
    """Rank 0: the dispatcher and worker 0 are processes beside the program."""
    words = list(rendezvous.server)
    if isinstance(rendezvous.socket, str):
        pathlib.Path(rendezvous.socket).unlink(missing_ok=True)  # left by a job that was killed
    else:
        words += ["--token-file", _token_file()]
    server = subprocess.Popen(
        [sys.executable, "-m", "gt.server", *words, "--log-level", "warn", "--end-with-input"],
        env=_environment(),
        stdin=subprocess.PIPE,  # closes when this process ends, in whatever way
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None, "a pipe"
    if not server.stdout.readline():
        raise ConfigError(f"init_process_group('mpi'): no dispatcher at {rendezvous.client}")
    worker = subprocess.Popen(_worker(place, rendezvous), env=_environment())
    atexit.register(_end, server, worker)
    connect(rendezvous.client, workers=place.size, worker_seconds=WAIT_SECONDS)


def _token_file() -> str:
    """A file with the token that only this user can read."""
    descriptor, path = tempfile.mkstemp(prefix="gt-mpi-")
    with os.fdopen(descriptor, "w") as file:
        file.write(f"mpi {config.token()}\n")
    atexit.register(pathlib.Path(path).unlink, missing_ok=True)
    return path


def _end(server: subprocess.Popen[bytes], worker: subprocess.Popen[bytes]) -> None:
    """End the dispatcher; the workers of all ranks end with it."""
    disconnect()
    server.terminate()
    for process in (server, worker):
        process.wait()


def _serve(place: Rank, rendezvous: _Rendezvous) -> None:
    """Any other rank: this process becomes a worker, as soon as the dispatcher listens.

    Raises:
        NoWorker: It does not listen in time: rank 0 runs another program, or has failed.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while not _listens(rendezvous.socket):
        if time.monotonic() > deadline:
            raise NoWorker(
                f"init_process_group('mpi'): rank {place.rank} finds no dispatcher of rank 0 at "
                f"{rendezvous.client}, after {WAIT_SECONDS:g} s"
            )
        time.sleep(POLL_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.execve(sys.executable, _worker(place, rendezvous), _environment())  # noqa: S606 - no shell


def _listens(address: tuple[str, int] | str) -> bool:
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(address) == 0


def _worker(place: Rank, rendezvous: _Rendezvous) -> list[str]:
    threads = config.threads() or max(1, config.core_count() // place.local_size)
    words = ["--id", str(place.rank), "--threads", str(threads)]
    return [sys.executable, "-m", "gt.worker", *rendezvous.worker, *words]


def _environment() -> dict[str, str]:
    """Environment of processes that import this GT, also from a checkout."""
    return config.with_settings(PYTHONPATH=config.session_options().python_path)
