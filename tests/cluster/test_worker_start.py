"""`python -m gt.worker` started wrong: one line that says why, exit status 2, and no traceback."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from cluster import Cluster
from test_connect_errors import HTTP, refusal, stranger

from gt.worker import __main__, startup

RUN_SECONDS = 50.0
AT = ["-p", "1"]  # somebody's port, where it matters only that there is one


def start(*words: str, **settings: str) -> str:
    """Error output of a worker that cannot start."""
    command = [sys.executable, "-m", "gt.worker", "--backend", "numpy", *words]
    environment = os.environ | {"GT_THREADS": "1"} | settings
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("gt.worker: ")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "one of --port, --unix and GT_ADDRESS=HOST:PORT says where the dispatcher is"),
        ([*AT, "--unix", "socket"], "one of --port, --unix and GT_ADDRESS=HOST:PORT says where"),
        (["-p", "x"], "argument -p/--port: 'x' is no number from 1 to 65535"),
        (["-p", ""], "argument -p/--port: '' is no number from 1 to 65535"),
        (["-p", "0"], "argument -p/--port: '0' is no number from 1 to 65535"),
        (["-p", "-1"], "argument -p/--port: '-1' is no number from 1 to 65535"),
        (["-p", "70000"], "argument -p/--port: '70000' is no number from 1 to 65535"),
        (["-p", "1.5"], "argument -p/--port: '1.5' is no number from 1 to 65535"),
        (["-p", "²"], "argument -p/--port: '²' is no number from 1 to 65535"),
        ([*AT, "--id", "-3"], "argument --id: '-3' is no number from 0 to 4294967295"),
        ([*AT, "--id", "4294967296"], "'4294967296' is no number from 0 to 4294967295"),
        ([*AT, "--id", "first"], "argument --id: 'first' is no number from 0 to 4294967295"),
        ([*AT, "--threads", "0"], "argument --threads: '0' is no number from 1 to 65535"),
        ([*AT, "--threads", "-2"], "argument --threads: '-2' is no number from 1 to 65535"),
        ([*AT, "--threads", "many"], "argument --threads: 'many' is no number from 1 to 65535"),
        ([*AT, "--backend", "cupy"], "argument --backend: invalid choice: 'cupy'"),
        ([*AT, "--process-groups", "mpi"], "argument --process-groups: invalid choice: 'mpi'"),
        ([*AT, "--trusted-network", "home"], "'home' does not appear to be an IPv4 or IPv6"),
        ([*AT, "--trusted-network", "10.0.0.0/40"], "'10.0.0.0/40' does not appear to be"),
        ([*AT, "--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_a_command_line_that_means_nothing(
    words: Sequence[str],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["gt.worker", *words])
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gt.worker: ")
    assert text in line


@pytest.mark.parametrize("host", ["nosuchhost.invalid", "no host", ""])
def test_an_unknown_host_is_named(host: str) -> None:
    assert f'the host "{host}" is unknown (' in start("--host", host, "-p", "1")


def test_nobody_answers(tmp_path: Path) -> None:
    assert "127.0.0.1:1: Connection refused" in start("-p", "1")
    path = tmp_path / "socket"
    assert f"unix:{path}: No such file or directory" in start("--unix", str(path))
    long = tmp_path / ("s" * 120)
    assert f"unix:{long}: path must be shorter than SUN_LEN" in start("--unix", str(long))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"", "no answer to the handshake"),
        (HTTP, "the first bytes are not GT's"),
        (refusal(b"this dispatcher speaks 7 to 9, you speak 1: update gt"), "update gt"),
    ],
    ids=["closes", "http", "version"],
)
def test_no_dispatcher_is_there(answer: bytes, text: str) -> None:
    with stranger(answer) as address:
        said = start("-p", address.rsplit(":", 1)[1])
    assert f"gt.worker: {address}: " in said
    assert text in said


def test_a_refusal_is_the_dispatchers(tmp_path: Path) -> None:
    with Cluster(0) as cluster:
        said = start("-p", cluster.port, "--id", "5000")
        assert said.endswith(": worker index 5000 is over the limit of 1024\n")
    tokens = tmp_path / "tokens"
    tokens.write_text("ada key-of-ada\n", encoding="utf-8")
    with Cluster(0, arguments=("--token-file", str(tokens))) as cluster:
        assert "GT_TOKEN" in start("-p", cluster.port)


@pytest.mark.parametrize("name", ["pytorch", "torch"])
def test_pytorchs_backend_without_pytorch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(startup.StartError, match="needs PyTorch, which is not installed here"):
        startup.choose(name)


@pytest.mark.parametrize(
    "name",
    [
        "GT_ATEN",
        "GT_COMPRESSION",
        "GT_IDLE_SECONDS",
        "GT_KERNELS",
        "GT_LOOK_AHEAD",
        "GT_PROCESS_GROUPS",
        "GT_THREADS",
        "GT_TRUSTED_NETWORKS",
        "GT_VERBOSE",
    ],
)
def test_a_variable_that_means_nothing(name: str) -> None:
    assert start("-p", "1", **{name: "maybe"}).startswith(f"gt.worker: {name}=maybe: expected ")


def test_objects_of_imported_modules_are_not_visited_by_collections():
    """The import of PyTorch takes a sixth less, and no later collection holds up instructions."""
    code = (
        "import gc\nfrom gt.worker import startup\n"
        "with startup.without_collections():\n"
        "    assert not gc.isenabled()\n    startup.load('numpy')\n"
        "assert gc.isenabled()\nassert gc.get_freeze_count() > 10_000, gc.get_freeze_count()\n"
        "assert len(gc.get_objects()) < 1_000, len(gc.get_objects())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
