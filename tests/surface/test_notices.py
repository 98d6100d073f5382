"""GT's notices beside errors: by the logger `gt`, or to standard error where none is set up."""

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster

from gt import notices

WAIT_SECONDS = 60.0
# Its workers do not run for three seconds, so that what it asks waits for longer than one.
SLOW_START = """
{before}
import os, signal
import gt
gt.init()
children = [int(c) for c in open(f"/proc/self/task/{{os.getpid()}}/children").read().split()]
for child in children:
    os.kill(child, signal.SIGSTOP)
signal.signal(signal.SIGALRM, lambda *_: [os.kill(child, signal.SIGCONT) for child in children])
signal.alarm(3)
print((gt.ones(2) + 1).sum().item())
"""
START = r"starting 2 workers \(numpy\): 0 ready, after \d s"
# Logging set-up of a program, whether its standard error is a terminal, and the output.
PLACES = {
    "nothing": ("", {}, False, ""),
    "terminal": ("", {}, True, f"gt: {START}\r\n"),
    "verbose": (
        "",
        {"GT_VERBOSE": "1"},
        False,
        f"gt: embedded dispatcher, 2 worker\\(s\\), backend numpy\ngt: {START}\n",
    ),
    "root": ("import logging; logging.basicConfig()", {}, False, f"INFO:gt:{START}\n"),
    "own_handler": (
        "import logging; logging.getLogger('gt').addHandler(logging.StreamHandler())",
        {},
        False,
        f"{START}\n",
    ),
    "own_level": (
        "import logging; logging.basicConfig(); logging.getLogger('gt').setLevel(logging.WARNING)",
        {},
        False,
        "",
    ),
    "own_level_alone": (
        "import logging; logging.getLogger('gt').setLevel(logging.WARNING)",
        {},
        True,
        "",
    ),
    "null": (
        "import logging; logging.getLogger('gt').addHandler(logging.NullHandler())",
        {},
        True,
        "",
    ),
}


def said(code: str, settings: dict[str, str], *, is_terminal: bool) -> tuple[str, str]:
    """Standard output and standard error of a program."""
    end, other = os.openpty() if is_terminal else (None, subprocess.PIPE)
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"GT_BACKEND": "numpy", "GT_WORKERS": "2"} | settings,
        stdout=subprocess.PIPE,
        stderr=other,
        text=True,
    )
    printed, errors = program.communicate(timeout=WAIT_SECONDS)
    if end is not None:
        os.set_blocking(end, False)
        try:
            errors = os.read(end, 65536).decode()
        except BlockingIOError:
            errors = ""
        os.close(end)
        os.close(other)
    return printed, errors


@pytest.mark.parametrize("name", PLACES)
def test_a_start_that_takes_long_is_told_where_somebody_looks(name: str) -> None:
    before, settings, is_terminal, shown = PLACES[name]
    code = SLOW_START.format(before=before)
    printed, errors = said(code, settings, is_terminal=is_terminal)
    assert printed == "4.0\n"
    assert re.fullmatch(shown, errors), errors


SET_UP = (
    "import logging; logging.basicConfig(format='%(levelname)s %(name)s: %(message)s')\n"
    "logging.getLogger('gt').setLevel(logging.WARNING)\n"
)


def test_a_failure_that_nobody_has_read_is_an_error_of_the_log() -> None:
    code = "import gt\nx = gt.arange(3)[gt.tensor([7])]\n"
    _, plain = said(code, {}, is_terminal=False)
    _, logged = said(SET_UP + code, {}, is_terminal=False)
    assert plain.startswith("gt: a failure that nobody has read:\n")
    assert logged.startswith("ERROR gt: a failure that nobody has read:\n")
    assert plain.splitlines()[1] == logged.splitlines()[1]


def test_a_dispatcher_without_workers_is_a_warning_of_the_log() -> None:
    with Cluster(0) as cluster:
        ask = f"import gt\ngt.connect({cluster.address!r}, worker_seconds=1.5)\n"
        ask += "try: gt.ones(1).item()\nexcept gt.errors.NoWorker: pass\n"
        _, plain = said(ask, {}, is_terminal=False)
        _, logged = said(SET_UP + ask, {}, is_terminal=False)
    assert plain.startswith(f"gt: dispatcher at {cluster.address}")
    assert "waiting for a worker" in plain
    assert logged == "WARNING " + plain


def test_connect_waits_for_as_many_workers_as_it_is_told() -> None:
    code = "import gt; gt.connect({!r}, workers=2); print(gt.distribute(gt.ones(4), 0).layout)"
    with Cluster(0) as cluster:
        command = [sys.executable, "-c", code.format(cluster.address)]
        client = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        waiting = client.stderr.readline()
        for _ in range(2):
            cluster.add_worker()
        printed, rest = client.communicate(timeout=WAIT_SECONDS)
    joined = f"0 of 2 workers have joined the dispatcher at {cluster.address}"
    assert waiting == f"gt: {joined}; waiting for the others\n"
    assert (printed, rest) == ("shard(0)@[0,1]\n", "")


def test_connect_does_not_wait_longer_than_it_is_told() -> None:
    with Cluster(1) as cluster:
        cluster.wait_for_workers()
        code = f"import gt\ntry: gt.connect({cluster.address!r}, workers=2, worker_seconds=0.1)\n"
        code += "except gt.NoWorker as error: print(error)\n"
        code += "print(gt.distribute(gt.ones(4), 0).layout)"
        printed, errors = said(code, {}, is_terminal=False)
    joined = f"1 of 2 workers have joined the dispatcher at {cluster.address}"
    assert printed == f"gt.connect: {joined}, after 0.1 s\nreplicate@[0]\n"
    assert errors == ""


@pytest.mark.parametrize("ending", ["pt", "pth"])
def test_a_safetensors_file_with_an_ending_of_pytorchs_is_told_once(
    ending: str, tmp_path: Path
) -> None:
    save = "import gt\nfor k in range(2): gt.save({{'a': gt.ones(2)}}, f'{}/{{k}}{}'{})\n"
    code = save.format(tmp_path, f".{ending}", "")
    assert said(code, {}, is_terminal=False) == ("", "")
    _, errors = said(code, {"GT_VERBOSE": "1"}, is_terminal=False)
    assert errors.count(f"ends with .{ending}: gt.load reads it, torch.load does not") == 1, errors
    others = [
        (".safetensors", ""),
        (f".{ending}", ", format='torch'"),
        (f".{ending}", ", pickle=True"),
    ]
    for suffix, more in others:
        _, errors = said(
            save.format(tmp_path, suffix, more), {"GT_VERBOSE": "1"}, is_terminal=False
        )
        assert "torch.load" not in errors


def test_the_import_does_not_load_logging() -> None:
    code = "import sys; import gt; print('logging' in sys.modules, 'gt.notices' in sys.modules)"
    assert said(code, {}, is_terminal=False) == ("False False\n", "")


@pytest.mark.parametrize("arguments", [[], ["--tcp"]], ids=["shared memory", "TCP"])
def test_a_worker_that_is_started_by_hand_says_that_it_has_joined(arguments: list[str]) -> None:
    way = "TCP" if arguments else "shared memory"
    with Cluster(0) as cluster:
        command = [*cluster.command, *arguments, "--id", "3"]
        worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        line = worker.stderr.readline()
        worker.terminate()
        worker.communicate(timeout=WAIT_SECONDS)
    told = f"has joined {cluster.address} by {way} (numpy, process {worker.pid})"
    assert line == f"gt.worker: worker 3 {told}\n"


@pytest.mark.parametrize("level", [notices.INFO, notices.WARNING])
def test_a_program_without_standard_error_is_told_nothing(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("gt"), "hasHandlers", lambda: False)
    monkeypatch.setattr(sys, "stderr", None)
    notices.say("something", level)
