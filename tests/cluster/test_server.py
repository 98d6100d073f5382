"""`python -m gt.server` as a process: what it prints, whom it refuses, how it ends.

Sessions with clients and workers are tested in crates/server/tests.
"""

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

HANG_SECONDS = 20.0


class Server:
    """A dispatcher process on a free port."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "gt.server", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, **pipes)
        self.first_line = self.process.stdout.readline().strip()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.first_line.removeprefix("listening on ").rsplit(":", 1)
        return host, int(port)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=HANG_SECONDS)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """The exit code and the log."""
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=HANG_SECONDS)
        return self.process.returncode, log


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server("-p", "0")
    yield running
    running.process.kill()
    running.process.communicate()


def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gt.server", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)


def test_first_line_is_the_address_and_the_rest_is_to_type(server: Server) -> None:
    host, port = server.address
    assert host == "127.0.0.1"
    assert server.process.stdout.readline().endswith(f"gt.worker --host 127.0.0.1 -p {port}\n")
    assert server.process.stdout.readline().endswith(f"gt.connect('127.0.0.1:{port}')\n")


def test_the_process_can_be_found_by_name(server: Server) -> None:
    command = Path(f"/proc/{server.process.pid}/cmdline").read_text(encoding="utf-8")
    assert "gt.server" in command


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_nothing_is_left(tmp_path: Path, number: int) -> None:
    path = tmp_path / "socket"
    server = Server("--unix", str(path))
    assert server.first_line == f"listening on unix:{path}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    code, log = server.stop(number)
    assert code == 0, log
    assert not path.exists()


def test_a_path_left_by_a_killed_one_is_taken_over(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    first = Server("--unix", path)
    assert "exists and is no socket of a dispatcher" in run(["--unix", path]).stderr
    first.process.kill()
    first.process.communicate()
    second = Server("--unix", path)
    assert second.stop()[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--host", "0.0.0.0", "-p", "0"], 1, "give --token-file FILE"),
        (["--token-file", "/nonexistent", "-p", "0"], 1, "cannot read the token file /nonexistent"),
        (["--listen", "nowhere", "-p", "0"], 2, "give one"),
        (
            ["--instruction-log", "/nonexistent/log", "-p", "0"],
            1,
            "cannot write the instruction",
        ),
        (["--colour"], 2, "invalid option '--colour'"),
    ],
)
def test_mistakes_in_the_command_are_one_line(arguments: list[str], code: int, text: str) -> None:
    done = run(arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


def test_other_hosts_may_be_served_with_tokens(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("ada key-of-ada\n", encoding="utf-8")
    server = Server("--host", "0.0.0.0", "-p", "0", "--token-file", str(tokens))
    assert server.first_line.startswith("listening on 0.0.0.0:")
    assert "GT_TOKEN" in server.process.stdout.readline()
    assert server.stop()[0] == 0


def test_random_bytes_are_one_line(server: Server) -> None:
    with server.connect() as stranger:
        try:
            stranger.sendall(os.urandom(1 << 20).replace(b"G", b"H"))
            while stranger.recv(4096):
                pass
        except ConnectionError:
            pass  # it closes without reading all that
    code, log = server.stop()
    assert code == 0
    assert log.count("WARN") == 1, log
    assert "not a GT peer" in log


def test_a_dispatcher_without_work_uses_no_cpu(server: Server) -> None:
    connections = [server.connect() for _ in range(10)]

    def ticks() -> int:
        fields = Path(f"/proc/{server.process.pid}/stat").read_text(encoding="utf-8").split()
        return int(fields[13]) + int(fields[14])

    before = ticks()
    # Ten strangers are dropped after three seconds: an event to wait for, without a sleep.
    for connection in connections:
        assert connection.recv(1) == b""
        connection.close()
    assert ticks() - before <= 20  # of 300; a thread that polls takes all of them
