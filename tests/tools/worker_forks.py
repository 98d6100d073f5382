"""A server that forks the workers of the tests, so that PyTorch is imported once.

    GT_TEST_FORKS=off pytest -n 2 --dist loadfile   # every worker begins by itself

Importing PyTorch takes two seconds of a processor, and the tests start hundreds of workers, of
sessions and of dispatchers. Each is still a process of its own with the command line that GT or a
test gives it: `forked/sitecustomize.py` asks for a fork there and stands for it until the end; a
signal to one reaches the other, except those that stop and continue: for these, `number` tells the
fork. Files of tests that are not in `WITH_FORKS`, such as all that judge processes, start workers
as users do, and so does every run of pytest in one process.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FORKED = Path(__file__).resolve().parent / "forked"
VARIABLE = "GT_TEST_FORKS"
THREADS = ("1", "2")  # of a worker: one server each, since OpenMP reads its number once
# Files of tests whose workers are forks, and those among them that stop workers or count processes,
# or judge how a worker starts and what it holds.
WITH_FORKS = (
    *("autograd/*", "kernels/*", "layouts/*", "nn/*", "operators/*", "surface/*"),
    *(f"front/test_front_{name}.py" for name in ("layouts", "modules", "native")),
    *(f"front/test_front_{name}.py" for name in ("programs", "scopes", "tensors")),
    "cluster/test_cancel.py",  # interrupts clients; the one worker that it stops, it asks for
    *(f"cluster/test_{name}.py" for name in ("compression", "emission")),
    *(f"cluster/test_{name}.py" for name in ("group_backend", "light_dynamo", "policy")),
    *(f"cluster/test_{name}.py" for name in ("prices", "rebalance", "threads")),
    *("tools/test_demo.py", "tools/test_profiler.py", "tools/test_readme.py"),
)
BY_THEMSELVES = (
    *("kernels/test_aten_memory.py", "kernels/test_aten_start.py", "kernels/test_bits.py"),
    *(f"layouts/test_guava_{name}.py" for name in ("blocks", "examples", "links")),
    *("layouts/test_guava_memory.py", "layouts/test_guava_runs.py", "operators/test_new_op.py"),
    *("surface/test_errors.py", "surface/test_notices.py"),
)
# Settings that libraries read when they load: a worker with other ones than the server begins by
# itself.
LIBRARIES = (
    *("ATEN_", "CUDA_", "DNNL_", "GLIBC_", "KMP_", "LD_", "MALLOC_", "MKL_", "OMP_", "ONEDNN_"),
    *("OPENBLAS_", "PYTHON", "TORCH_"),
)
PASSED = ("PYTHONPATH", "PYTHONSAFEPATH", "OMP_NUM_THREADS", "OMP_WAIT_POLICY")
PASSED += ("TORCH_DEVICE_BACKEND_AUTOLOAD",)
REQUEST_BYTES_MAX = 1 << 20


class Server:
    """The process, for the time of a run; it ends with its standard input."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gt-forks-")
        path = [str(FORKED), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), self._folder.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, path)])},
            start_new_session=True,
        )
        self.process = self._process.pid
        Path(self._folder.name, "network").symlink_to(os.readlink("/proc/self/ns/net"))  # noqa: PTH115
        assert self._process.stdout.readline() == b"ready\n"
        os.environ[VARIABLE] = self._folder.name

    def end(self) -> None:
        """Ends the process and whatever it has forked."""
        os.environ.pop(VARIABLE, None)
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=20)
        self._folder.cleanup()


class Choice:
    """Lets the workers of each file of tests begin as that file wants."""

    def __init__(self) -> None:
        self._has_forks = False  # workers of a session that is still there may be forks

    @contextlib.contextmanager
    def of(self, file: Path) -> Iterator[None]:
        """Within it workers begin as this file wants."""
        folder = os.environ.get(VARIABLE, "off")
        if folder == "off" or has_forks(file.relative_to(ROOT).as_posix()):
            self._has_forks = folder != "off"
            yield
            return
        if self._has_forks and "gt" in sys.modules:
            sys.modules["gt"].disconnect()
        self._has_forks = False
        del os.environ[VARIABLE]
        yield
        os.environ[VARIABLE] = folder


def has_forks(file: str) -> bool:
    """True of a file whose workers are forks."""
    name = file.removeprefix("tests/")
    return _is_one(name, WITH_FORKS) and not _is_one(name, BY_THEMSELVES)


def _is_one(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def number(process: int) -> int:
    """Number of the process that computes for one that a test has started: its fork, or itself."""
    try:
        name = Path(f"/proc/{process}/comm").read_text()
    except OSError:  # gone already
        return process
    return int(name.removeprefix("fork ")) if name.startswith("fork ") else process


def _settings(environment: dict[str, str]) -> dict[str, str]:
    """Variables that a library reads when it loads, and folders of modules outside the checkout."""
    read = {
        name: value
        for name, value in environment.items()
        if name.startswith(LIBRARIES) and name not in PASSED
    }
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    outside = [one for one in folders if one and not Path(one).is_relative_to(ROOT)]
    return read | {"PYTHONPATH": os.pathsep.join(outside)}


class _Forker:
    """Forks on request of each connection of one socket, until standard input ends."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._settings = _settings(dict(os.environ))
        self._poll = select.poll()
        self._poll.register(0, select.POLLHUP)
        self._poll.register(listener, select.POLLIN)
        self._forks: dict[int, tuple[int, int, socket.socket]] = {}  # by each of two descriptors

    def serve(self) -> "list[str] | None":
        """Returns a worker's words in its fork, and None at the end."""
        while True:  # ends with standard input
            for descriptor, _ in self._poll.poll():
                if descriptor == 0:
                    self._kill_all()
                    return None
                if descriptor != self._listener.fileno():
                    self._end(descriptor)
                elif (words := self._accept()) is not None:
                    return words

    def _accept(self) -> "list[str] | None":
        connection, _ = self._listener.accept()
        received = _received(connection)
        if received is None:
            connection.close()
            return None
        folder, words, environment, descriptors = received
        if _settings(environment) != self._settings:
            connection.sendall((0).to_bytes(8, "little"))
            connection.close()
        elif (child := os.fork()) == 0:
            self._listener.close()
            connection.close()
            for _, _, other in self._forks.values():
                other.close()
            return _become(folder, words, environment, descriptors)
        else:
            watched = os.pidfd_open(child)
            self._forks[watched] = self._forks[connection.fileno()] = (child, watched, connection)
            self._poll.register(watched, select.POLLIN)
            self._poll.register(connection, select.POLLIN)
            with contextlib.suppress(OSError):  # gone already, which the poll tells
                connection.sendall(child.to_bytes(8, "little"))
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def _end(self, descriptor: int) -> None:
        """A fork has ended, or the process that stands for it: then the other must too."""
        if descriptor not in self._forks:  # the other of the two was ready at the same time
            return
        child, watched, connection = self._forks[descriptor]
        if descriptor != watched:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        for one in (watched, connection.fileno()):
            self._poll.unregister(one)
            del self._forks[one]
        with contextlib.suppress(OSError):
            code = os.waitstatus_to_exitcode(status)
            connection.sendall(code.to_bytes(8, "little", signed=True))
        connection.close()
        os.close(watched)

    def _kill_all(self) -> None:
        for child in {child for child, _, _ in self._forks.values()}:
            os.kill(child, signal.SIGKILL)


def _received(
    connection: socket.socket,
) -> "tuple[str, list[str], dict[str, str], list[int]] | None":
    """A request's folder, words, environment and descriptors; None if it was cut off."""
    length, descriptors, _, _ = socket.recv_fds(connection, 8, 8)
    total = int.from_bytes(length, "little")
    text = b""
    while len(length) == 8 and len(text) < min(total, REQUEST_BYTES_MAX):
        more = connection.recv(total - len(text))
        if not more:
            break
        text += more
    if not descriptors or len(text) != total:
        return None
    folder, count, *fields = os.fsdecode(text).split("\0")
    words, variables = fields[: int(count)], fields[int(count) :]
    return folder, words, dict(one.split("=", 1) for one in variables), descriptors


def _become(
    folder: str, words: list[str], environment: dict[str, str], descriptors: list[int]
) -> list[str]:
    """Takes over the requesting process's state; returns the words with the new descriptor."""
    os.setsid()
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [one for one in entries if one and one not in sys.path]
    for option in ("--control-fd", "--fork-fd"):
        if option in words:
            words[words.index(option) + 1] = str(descriptors[3])
    sys.argv = [sys.argv[0], *words]
    return words


def _serve(listener: socket.socket, threads: str) -> None:
    """Imports what workers need, then forks; never returns."""
    from gt.worker import __main__ as worker
    from gt.worker import forking, startup

    startup.load("numpy")
    startup.load("native")
    assert forking.is_ready("auto", int(threads)), "a thread runs where workers would be forked"
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    words = _Forker(listener).serve()
    status = 0
    if words is not None:
        try:
            status = worker.main(words)
        except SystemExit as ended:
            status = int(ended.code or 0)
        except BaseException:  # noqa: BLE001 - as at the end of any program
            sys.excepthook(*sys.exc_info())
            status = 1
        import atexit

        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def main(folder: str) -> None:
    """Listens for each number of threads, and imports at the first request for it."""
    listeners = {}
    poll = select.poll()
    poll.register(0, select.POLLHUP)
    for threads in THREADS:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/{threads}")
        listener.listen(64)
        listeners[listener.fileno()] = (listener, threads)
        poll.register(listener, select.POLLIN)
    os.write(1, b"ready\n")
    children = []
    while True:  # ends with standard input
        for descriptor, _ in poll.poll():
            if descriptor == 0:
                for child in children:
                    os.waitpid(child, 0)
                return
            listener, threads = listeners.pop(descriptor)
            poll.unregister(descriptor)
            if child := os.fork():
                children.append(child)
                listener.close()
            else:
                _serve(listener, threads)


if __name__ == "__main__":
    main(sys.argv[1])
