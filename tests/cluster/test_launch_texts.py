"""Texts that launchers submit, command lines, places of workers, the page, and examples/deploy.

Processes are in test_launch.py.
"""

import configparser
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import types
from pathlib import Path

import pytest
from launched import NUMPY, gt

from gt.config import place
from gt.errors import ConfigError
from gt.launch import ENGINES, command, engine, ray
from gt.launch.engine import LaunchError
from gt.tools import cli
from gt.worker import forks, startup

TEXTS = Path(__file__).with_name("launches")

# ---- the text that would be submitted ----


def texts():
    """A file a case: `$ gt …`, variables before it, then what it prints."""
    return sorted(TEXTS.glob("*.txt"))


@pytest.mark.fast
@pytest.mark.parametrize("file", texts(), ids=lambda file: file.stem)
def test_the_text_that_would_be_submitted(file, tmp_path, monkeypatch, capsys):
    typed, _, expected = file.read_text(encoding="utf-8").partition("\n")
    line = shlex.split(typed.removeprefix("$ "))
    start = line.index("gt")
    variables, name, words = line[:start], line[start + 1], line[start + 2 :]
    for variable in ("GT_BACKEND", "GT_THREADS", "GT_ADDRESS", "GT_TOKEN", "GT_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    for variable in variables:
        monkeypatch.setenv(*variable.split("=", 1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "gethostname", lambda: "head")
    assert {"launch": command.launch, "up": command.up}[name](words) == 0
    printed = capsys.readouterr().out.replace(str(tmp_path), "FOLDER")
    printed = printed.replace(sys.executable, "PYTHON")
    if os.environ.get("EXPECTTEST_ACCEPT"):
        file.write_text(f"{typed}\n{printed}", encoding="utf-8")
        return
    assert printed == expected


@pytest.mark.fast
def test_every_engine_has_a_text():
    shown = {re.search(r"--on (\S+)", file.read_text())[1] for file in texts()}
    assert shown == set(ENGINES)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--on nowhere -n 2", "--on nowhere: expected one of local, ssh, slurm"),
        ("--on local", "-n is missing"),
        ("--on local -n 2 --hosts a,b", "--on local takes no hosts"),
        ("--on ssh -n 2", "needs --hosts"),
        ("--on ssh -n 2 --hosts a:x", "host 'a:x': expected HOST or HOST:WORKERS"),
        ("--on ssh -n 2 --hosts a:0", "host 'a:0'"),
        ("--on ssh -n 2 --hosts :2", "host ':2'"),
        ("--on ssh -n 2 --hosts a:2,b:2", "-n 2: the hosts take 4 workers"),
        ("--on ssh -n 5 --hosts a:2,b:2", "-n 5: the hosts take 4 workers"),
        ("--on slurm -n 2 --set colour=red", "settings of slurm are account"),
        ("--on local -n 2 --set colour=red", "--set colour=red: local has no settings"),
        ("--on slurm -n 2 --set account", "--set account"),
        ("--on mpi -n 2 --set dialect=welsh", "expected one of openmpi, mpich"),
        ("--on k8s -n 2", "--set image=IMAGE is missing"),
        ("--on k8s -n 2 --set image=i --set kind=pod", "expected one of jobset, leader"),
        ("--on k8s -n 3 --set image=i --set workers-of-a-pod=2", "-n 3: no whole number"),
        ("--on k8s -n 3 --set image=i --set workers-of-a-pod=no", "expected a number from 1"),
        ("--on k8s -n 2 --set image=i --set kind=leaderworkerset", "a LeaderWorkerSet stays"),
        ("--on local -n 2 --env GT_NO_SUCH_VARIABLE", "no variable of that name is set"),
    ],
)
def test_what_cannot_be_meant_is_one_line(words, text, monkeypatch, capsys):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("gt.config.gpu_count", lambda: 0)
    assert command.launch([*words.split(), "--dry-run", "--", "python", "train.py"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert text in said.err
    assert said.err.count("\n") == 1


@pytest.mark.fast
def test_a_program_that_is_not_there_is_told_before_anything_starts(capsys):
    assert command.launch(["-n", "1", "--", "no-such-program"]) == 1
    told = capsys.readouterr().err
    assert told == "gt launch: the program is not found: no-such-program\n"
    assert command.launch(["-n", "1"]) == 2
    assert "a program is missing" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.launch(["-n", "1", "python", "train.py"])
    assert "python train.py (a program stands behind --)" in capsys.readouterr().err
    for words in ("two", "0", "-1", "1.5"):
        with pytest.raises(SystemExit):
            command.launch([f"-n={words}", "--", "python", "train.py"])
        assert f"-n/--workers: {words}: expected a number from 1" in capsys.readouterr().err


def test_a_ray_cluster_that_is_not_there_is_one_line(monkeypatch, capsys):
    """With a Ray that is played: the real one is in test_launch_engines.py."""

    def init(**_):
        raise ConnectionError("Could not find any running Ray instance.\nMore words.")

    played = types.ModuleType("ray")
    played.init = init
    group, strategies = types.ModuleType("group"), types.ModuleType("strategies")
    group.placement_group = strategies.PlacementGroupSchedulingStrategy = None
    for name, module in {
        "ray": played,
        "ray.util": types.ModuleType("ray.util"),
        "ray.util.placement_group": group,
        "ray.util.scheduling_strategies": strategies,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "argv", ["ray", "2"])
    assert ray.main() == 1
    told = capsys.readouterr().err
    assert told.startswith("no Ray cluster at address auto: Could not find any running Ray")
    assert "ray start --head" in told
    assert told.count("\n") == 1


@pytest.mark.fast
def test_an_engine_of_another_distribution(tmp_path, monkeypatch):
    facts = tmp_path / "cloud-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: cloud\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[gt.launchers]\ncloud = cloud_engine:ENGINE\nlocal = cloud_engine:ENGINE\nno = os:sep\n"
    )
    (tmp_path / "cloud_engine.py").write_text(
        "from gt.launch import Attached, Command\n"
        "ENGINE = Attached(name='cloud', summary='', commands=lambda plan: [\n"
        "    Command(label='cloud', words=('cloud', str(plan.workers), plan.address))])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    described = engine("cloud")
    assert described.name == "cloud"
    assert engine("local").name == "local"  # GT's own names stay GT's
    with pytest.raises(LaunchError, match=r"no gt\.launch\.Engine"):
        engine("no")


# ---- the place of a worker ----

PLACES = [
    ({"RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, ("torchrun", 3, 1, 2)),
    (
        {
            "OMPI_COMM_WORLD_RANK": "5",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
        },
        ("Open MPI", 5, 1, 4),
    ),
    ({"PMI_RANK": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "3"}, ("MPICH", 2, 0, 3)),
    ({"SLURM_PROCID": "9", "SLURM_LOCALID": "1"}, ("Slurm", 9, 1, None)),
    ({"LWS_WORKER_INDEX": "1"}, ("LeaderWorkerSet", 1, None, None)),
    ({"JOB_COMPLETION_INDEX": "7"}, ("Kubernetes", 7, None, None)),
    ({"RANK": "4"}, ("RANK", 4, None, None)),
    # The innermost holds: mpirun in a job of Slurm, torchrun in a task of srun or in a pod.
    (
        {
            "SLURM_PROCID": "0",
            "SLURM_LOCALID": "0",
            "OMPI_COMM_WORLD_RANK": "6",
            "OMPI_COMM_WORLD_LOCAL_RANK": "6",
        },
        ("Open MPI", 6, 6, None),
    ),
    (
        {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "RANK": "9", "LOCAL_RANK": "1"},
        ("torchrun", 9, 1, None),
    ),
    ({"JOB_COMPLETION_INDEX": "1", "RANK": "9", "LOCAL_RANK": "1"}, ("torchrun", 9, 1, None)),
    ({"JOB_COMPLETION_INDEX": "1", "LWS_WORKER_INDEX": "2"}, ("LeaderWorkerSet", 2, None, None)),
    # A job of Slurm that sets RANK for its script has numbered by its own.
    ({"RANK": "0", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}, ("Slurm", 3, 1, None)),
]


@pytest.mark.fast
@pytest.mark.parametrize(("variables", "expected"), PLACES)
def test_place_by_the_variables_of_an_engine(variables, expected):
    own = place.found(variables | {"HOME": "x"})
    assert (own.engine, own.rank, own.local_rank, own.local_size) == expected


@pytest.mark.fast
@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({}, "none of RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID"),
        ({"RANK": ""}, "none of RANK"),
        ({"RANK": "-1"}, "RANK=-1: expected a whole number"),
        ({"SLURM_PROCID": "one", "SLURM_LOCALID": "0"}, "SLURM_PROCID=one"),
        ({"JOB_COMPLETION_INDEX": "²"}, "JOB_COMPLETION_INDEX=²"),
    ],
)
def test_no_place(variables, text):
    with pytest.raises(ConfigError, match=re.escape(text)):
        place.found(variables)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("local_size", "cores", "machine", "threads"),
    [(None, 8, 8, None), (4, 8, 8, 2), (4, 2, 8, 2), (4, 1, 8, 1), (16, 8, 8, 1), (3, 8, 8, 2)],
)
def test_threads_of_workers_that_share_a_host(local_size, cores, machine, threads):
    own = place.Place(engine="", rank=0, local_rank=0, local_size=local_size)
    assert place.threads(own, cores, machine) == threads


@pytest.mark.fast
@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({}, 2),
        ({"OMP_NUM_THREADS": "1"}, 2),  # torchrun's own, where nobody has set it
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "1", "GT_THREADS": "1"}, 1),
    ],
)
def test_workers_of_torchrun_share_the_cores(variables, threads, monkeypatch):
    from gt.worker import __main__ as worker

    for name in ("OMP_NUM_THREADS", "GT_THREADS"):
        monkeypatch.delenv(name, raising=False)
    variables = {"RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4", **variables}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("gt.config.core_count", lambda: 8)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    started = []
    monkeypatch.setattr(startup, "run", lambda start: started.append(start.threads) or 0)
    assert worker.main(["--launch", "auto", "--port", "1"]) == 0
    assert started == [threads]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("words", "variables", "index", "gpu"),
    [
        ("", {}, None, None),
        ("--id 5", {}, 5, None),
        ("--id 5 --gpu 1", {}, 5, 1),
        ("--launch auto", {"RANK": "9", "LOCAL_RANK": "1"}, 9, 1),
        ("--launch auto --id 2 --gpu 0", {"RANK": "9", "LOCAL_RANK": "1"}, 2, 0),
        ("--launch auto --count 4", {"JOB_COMPLETION_INDEX": "2"}, 8, None),
    ],
)
def test_index_and_gpu_of_a_worker(words, variables, index, gpu, monkeypatch):
    from gt.worker import __main__ as worker

    for engine_row in place.ENGINES:
        for name in (engine_row.rank, engine_row.local_rank):
            monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    started = []
    monkeypatch.setattr(startup, "run", lambda start: started.append(start) or 0)
    monkeypatch.setattr(forks, "run", lambda start, count, **_: started.append(start) or 0)
    monkeypatch.setenv("GT_ADDRESS", "[::1]:77")
    assert worker.main(words.split()) == 0
    (start,) = started
    assert (start.index, start.gpu, start.host, start.port) == (index, gpu, "::1", 77)
    assert start.wait_seconds == (60 if "auto" in words else 0)


@pytest.mark.fast
def test_workers_of_one_process_are_neighbours():
    base = startup.Start(
        backend="numpy", threads=None, index=8, token="", control_fd=None,
        host="h", port=1, unix=None,
    )  # fmt: skip
    children = forks.starts(base, 3)
    assert [(child.index, child.gpu) for child in children] == [(8, 0), (9, 1), (10, 2)]
    assert {child.threads for child in children} == {max(1, len(os.sched_getaffinity(0)) // 3)}


# ---- the page ----

PAGE = Path(__file__).resolve().parent.parent.parent / "docs/launching.md"


def blocks(language):
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_first_commands_of_the_page(tmp_path):
    """Typed in a shell, with `gt` as a person has it."""
    (tmp_path / "train.py").write_text(blocks("python")[0], encoding="utf-8")
    (tmp_path / "bin").mkdir()
    for name, words in {"gt": "-m gt", "python": ""}.items():
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    settings = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "GT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-euc", blocks("sh")[0]],
        cwd=tmp_path,
        env=os.environ | NUMPY | settings,
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert done.returncode == 0, done.stderr
    results = [line for line in done.stdout.splitlines() if line == "48.0"]
    assert len(results) == 2
    assert list((tmp_path / "clusters").glob("*.json")) == []


@pytest.mark.fast
@pytest.mark.parametrize("line", blocks("sh")[1].splitlines())
def test_commands_of_the_page_by_engine(line, capsys):
    _gt, _launch, *words = shlex.split(line, comments=True)
    assert (_gt, _launch) == ("gt", "launch")
    end = words.index("--")
    assert command.launch([*words[:end], "--dry-run", *words[end:]]) == 0
    assert "train.py" in capsys.readouterr().out


@pytest.mark.fast
@pytest.mark.parametrize("line", blocks("sh")[2].splitlines())
def test_workers_of_the_page(line, monkeypatch):
    variable, name, own, *words = shlex.split(line, comments=True)
    assert (name, own) == ("gt", "worker")
    monkeypatch.setenv(*variable.split("="))
    monkeypatch.setenv("RANK", "1")
    started = []
    monkeypatch.setattr(startup, "run", lambda start: started.append(start) or 0)
    monkeypatch.setattr(forks, "run", lambda start, count, **_: started.append(start) or 0)
    assert cli.main(["worker", *words]) == 0
    assert (started[0].host, started[0].port) == ("HEAD", 12345)


@pytest.mark.fast
@pytest.mark.parametrize("line", blocks("sh")[3].splitlines())
def test_doctor_of_the_page(line, capsys):
    words = shlex.split(line, comments=True)
    assert cli.main(words[1:]) in (0, 1)
    assert "PyTorch" in capsys.readouterr().out


@pytest.mark.fast
def test_the_page_has_every_engine_and_setting():
    text = PAGE.read_text(encoding="utf-8")
    for name in ENGINES:
        (row,) = re.findall(rf"^\| `{name}` \|.*$", text, re.MULTILINE)
        assert set(engine(name).settings) <= set(re.findall(r"`([\w-]+)`", row)), name
    for row in place.ENGINES:
        shown = f"| `{row.rank}` | " + (f"`{row.local_rank}` |" if row.local_rank else "|")
        assert shown in text, row


# ---- examples/deploy ----

DEPLOY = PAGE.parent.parent / "examples/deploy"


def unit(name):
    """Settings of a service."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str
    parser.read(DEPLOY / name)
    assert set(parser.sections()) == {"Unit", "Service", "Install"}
    return parser["Service"]


def test_the_unit_of_the_dispatcher_starts_one(tmp_path):
    service = unit("gt-dispatcher.service")
    python, *words = shlex.split(service["ExecStart"])
    assert python == "/opt/gt/bin/python"
    name, _, source = service["LoadCredential"].partition(":")
    assert (name, source) == ("tokens", "/etc/gt/tokens")
    (tmp_path / name).write_text("anna key-of-anna\n")
    (tmp_path / name).chmod(0o400)  # as systemd leaves it
    words = [word.replace("${CREDENTIALS_DIRECTORY}", str(tmp_path)) for word in words]
    words[words.index("12345")] = "0"
    server = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert server.stdout.readline().startswith("listening on 0.0.0.0:")
    server.terminate()
    server.communicate()


@pytest.mark.fast
def test_the_unit_of_workers_is_a_command_line_that_is_understood(monkeypatch):
    from gt.worker import __main__ as worker

    service = unit("gt-worker.service")
    python, dash, module, *words = shlex.split(service["ExecStart"])
    assert (python, dash, module) == ("/opt/gt/bin/python", "-m", "gt.worker")
    started = []
    monkeypatch.setattr(forks, "run", lambda start, count, **_: started.append((start, count)))
    monkeypatch.setenv("GT_ADDRESS", "head:12345")
    monkeypatch.setenv("GT_TOKEN", "key")
    worker.main(words)
    ((start, count),) = started
    assert (start.host, start.port, start.token, count) == ("head", 12345, "key", 8)
    assert start.wait_seconds == 3600


@pytest.mark.fast
def test_the_image_runs_what_gt_has():
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    steps = re.findall(r"^([A-Z]+) ", text, re.MULTILINE)
    assert steps == ["FROM", "RUN", "COPY", "RUN", "RUN", "USER", "WORKDIR", "ENV", "CMD"]
    (words,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    python, dash, module, name = json.loads(words)
    assert (python, dash, module) == ("python", "-m", "gt")
    assert name in cli.OWN or name == "doctor"
    assert gt("doctor", "--json").returncode == 0
