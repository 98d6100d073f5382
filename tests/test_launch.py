"""`gt launch`, `gt up`, `gt down` and `gt worker --launch auto`: texts, places, ends of processes.

Engines themselves run in test_launch_engines.py.
"""

import configparser
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cluster import until

from gt.errors import ConfigError
from gt.launch import ENGINES, command, engine, slurm, stay, watch
from gt.launch.engine import LaunchError
from gt.tools import cli
from gt.worker import forks, place, startup

TEXTS = Path(__file__).with_name("launches")
SUM = """
import gt
print(gt.distribute(gt.ones(8, 4), dim=0).sum().item(), gt.debug.stats()["workers"])
"""
SUM_WORDS = (sys.executable, "-c", SUM)
NUMPY = {"GT_BACKEND": "numpy"}


def gt(*words, **settings):
    """`gt` in a process of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "gt", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=50,
        env=os.environ | NUMPY | settings,
    )


@contextmanager
def launched(*words, **settings):
    """`gt launch` at work, with pipes; it is killed if it is still there at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gt", "launch", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | NUMPY | settings,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def of_launch(pid):
    """Command lines of the living processes that descend from one, in sessions of their own too."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone meanwhile
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family - {pid}


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
        ("--on local -n 2 --set colour=red", "settings of local are none"),
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
    assert "not found: no-such-program" in capsys.readouterr().err
    assert command.launch(["-n", "1"]) == 2
    assert "a program is missing" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.launch(["-n", "1", "python", "train.py"])
    assert "python train.py (a program stands behind --)" in capsys.readouterr().err


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


# ---- processes that are watched ----


def watched(code):
    lines = []
    one = watch.Watch(lambda label, line: lines.append((label, line)))
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    one.add("a worker", process, os.dup(process.stdout.fileno()))
    process.stdout.close()
    return one, process, lines


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("print('one'); print('two'); exit(3)", "with status 3; its last words:\n    one\n    two"),
        ("exit(1)", "with status 1, without a word"),
        ("print('no newline', end='')", "with status 0; its last words:\n    no newline"),
        ("import os; os.kill(os.getpid(), 9)", "by SIGKILL, without a word"),
        ("import os; os.write(1, b'\\xff\\n\\n')", "with status 0; its last words:\n    \ufffd"),
        (
            "print(*range(30), sep='\\n')",
            "with status 0; its last words:\n    " + "\n    ".join(map(str, range(18, 30))),
        ),
    ],
)
def test_an_end_has_its_last_words(code, sentence):
    one, process, _ = watched(code)
    (ended,) = one.wait(20)
    assert ended.sentence() == f"a worker (process {process.pid}) has ended {sentence}"
    assert one.processes == []


def test_lines_are_told_as_they_come_and_a_long_one_is_cut():
    one, _, lines = watched("print('x' * 10000, flush=True); input()")
    until(lambda: one.step(0.01) or lines)
    assert {label for label, _ in lines} == {"a worker"}
    assert all(len(line) <= watch.LINE_BYTES_MAX for _, line in lines)
    one.stop()


def test_who_does_not_end_is_killed():
    one, _, lines = watched(
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\n"
        "while True: time.sleep(1)"
    )
    until(lambda: one.step(0.01) or lines)
    (ended,) = one.stop(0.3)
    assert ended.code == -signal.SIGKILL


# ---- gt launch on this machine ----


def test_eight_workers_give_their_first_result():
    done = gt("launch", "-n", 8, "--", sys.executable, "-c", SUM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "32.0 8\n"
    assert re.fullmatch(
        r"gt launch: 8 workers have joined 127\.0\.0\.1:\d+ after \d+\.\d s\n", done.stderr
    )


def test_the_program_s_exit_status_is_the_launch_s():
    done = gt("launch", "-n", 1, "--", sys.executable, "-c", "raise SystemExit(7)")
    assert done.returncode == 7, done.stderr


def test_a_worker_that_dies_early_is_reported_with_its_last_words():
    with launched("-n", "2", "--", sys.executable, "-c", "print(1)", GT_KERNELS="wrong") as process:
        printed, said = process.communicate(timeout=20)
    assert (process.returncode, printed) == (1, "")
    assert "workers (process" in said
    assert "has ended with status 2; its last words:" in said
    assert "    gt.worker: GT_KERNELS=wrong: expected one of auto, off, on" in said


def killed_worker(pids):
    """Kills one forked worker among the processes; returns its number."""
    for pid in sorted(pids):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if b"gt.worker" in command and b"gt.worker" in Path(f"/proc/{parent}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return pid
    raise AssertionError(pids)


def test_a_worker_that_dies_later_is_told_and_the_others_go_on():
    code = "import gt; print(gt.ones(2).sum().item(), flush=True); input(); print('end')"
    with subprocess.Popen(
        [sys.executable, "-m", "gt", "launch", "-n", "2", "--", sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | NUMPY,
    ) as process:
        assert process.stdout.readline() == "2.0\n"
        pid = killed_worker(of_launch(process.pid))
        told = []
        while f"(process {pid})" not in "".join(told[-1:]):
            told.append(process.stderr.readline())
            assert told[-1], told
        assert re.match(r"gt\.worker: worker \d \(process \d+\) has ended by SIGKILL", told[-1])
        printed, _ = process.communicate("\n", timeout=20)
        assert printed == "end\n"
        assert process.returncode == 0


WAITS = """
import gt, signal, sys
def end(*_):
    print("saved", flush=True)
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
print(gt.ones(2).sum().item(), flush=True)
signal.pause()
"""


def test_a_request_to_end_is_the_program_s_to_answer():
    with launched("-n", "2", "--", sys.executable, "-c", WAITS) as process:
        assert process.stdout.readline() == "2.0\n"
        family = of_launch(process.pid)
        process.terminate()
        printed, said = process.communicate(timeout=20)
    assert (printed, process.returncode) == ("saved\n", 5), said
    assert not [pid for pid in family if is_alive(pid)]


DEAF = WAITS.replace("signal.signal(signal.SIGTERM, end)", "signal.signal(15, signal.SIG_IGN)")


def test_a_second_request_ends_a_program_that_does_not_answer(monkeypatch):
    with launched("-n", "1", "--", sys.executable, "-c", DEAF) as process:
        assert process.stdout.readline() == "2.0\n"
        family = of_launch(process.pid)
        assert len(family) >= 4  # the dispatcher, who forks, the worker, the program
        process.terminate()
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=40)
    assert not [pid for pid in family if is_alive(pid)]


def test_a_killed_launch_leaves_no_process():
    with launched("-n", "2", "--", sys.executable, "-c", WAITS) as process:
        assert process.stdout.readline() == "2.0\n"
        family = of_launch(process.pid)
        program = [
            pid for pid in family if b"signal.pause" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        process.kill()
        process.wait()
        until(lambda: not [pid for pid in family - set(program) if is_alive(pid)])
        os.kill(program[0], signal.SIGTERM)  # it runs until it asks GT for something


def test_the_token_stands_on_no_command_line_and_in_no_readable_file():
    code = "import os; print(os.environ['GT_TOKEN'], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-m", "gt", "launch", "-n", "1", "--", sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=os.environ | NUMPY,
    ) as process:  # fmt: skip
        token = process.stdout.readline().strip()
        assert re.fullmatch("[0-9a-f]{32}", token)
        lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in of_launch(process.pid)]
        assert not [line for line in lines if token in line]
        (file,) = {word for line in lines for word in line.split("\0") if word.endswith("/tokens")}
        assert Path(file).stat().st_mode & 0o777 == 0o600
        assert Path(file).parent.stat().st_mode & 0o777 == 0o700
        process.communicate("\n", timeout=20)
    assert not Path(file).exists()


def test_workers_of_an_engine_of_one_s_own_take_their_places():
    """Started by hand as Slurm and Open MPI would, the second first."""
    with launched("--on", "elsewhere", "-n", "2", "--host", "127.0.0.1", "--", *SUM_WORDS) as head:
        hint = head.stderr.readline()
        match = re.search(r"GT_TOKEN=(\S+.*\)) GT_ADDRESS=(\S+) python -m gt.worker$", hint)
        assert match, hint
        cut = subprocess.run(["sh", "-c", f"echo {match[1]}"], capture_output=True, text=True)
        own = NUMPY | {"GT_TOKEN": cut.stdout.strip(), "GT_ADDRESS": match[2]}
        places = [
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "SLURM_PROCID": "0"},
            {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"},
        ]
        words = [sys.executable, "-m", "gt", "worker", "--launch", "auto"]
        workers = [
            subprocess.Popen(words, env=os.environ | own | one, stderr=subprocess.PIPE, text=True)
            for one in places
        ]
        joined = [one.stderr.readline() for one in workers]
        assert [line.partition(" has joined ")[0] for line in joined] == [
            "gt.worker: worker 1",
            "gt.worker: worker 0",
        ]
        printed, said = head.communicate(timeout=20)
        assert (head.returncode, printed) == (0, "32.0 2\n"), said
        for one in workers:
            one.communicate(timeout=20)


def test_a_worker_calls_until_there_is_a_dispatcher(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    words = [sys.executable, "-m", "gt.worker", "-p", str(port), "--wait-seconds"]
    early = subprocess.run(
        [*words, "0"], env=os.environ | NUMPY, capture_output=True, text=True, timeout=30
    )
    assert early.returncode == 2
    worker = subprocess.Popen(
        [*words, "30"], env=os.environ | NUMPY, stderr=subprocess.PIPE, text=True
    )
    server = subprocess.Popen(
        [sys.executable, "-m", "gt.server", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert worker.stderr.readline().startswith("gt.worker: worker 0 has joined ")
    server.terminate()
    server.wait()
    worker.communicate(timeout=20)


def test_nohup_means_what_it_says():
    code = "import gt; print(gt.ones(2).sum().item(), flush=True); input(); print('end')"
    with subprocess.Popen(
        [
            "nohup",
            sys.executable,
            "-m",
            "gt",
            "launch",
            "-n",
            "1",
            "--",
            sys.executable,
            "-c",
            code,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | NUMPY,
    ) as process:
        assert process.stdout.readline() == "2.0\n"
        process.send_signal(signal.SIGHUP)
        printed, _ = process.communicate("\n", timeout=20)
    assert (process.returncode, printed) == (0, "end\n")


def test_workers_that_do_not_join_in_time_are_counted():
    words = ["--on", "elsewhere", "--host", "127.0.0.1", "-n", "3", "--join-seconds", "0.2"]
    done = gt("launch", *words, "--", *SUM_WORDS)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(r"0 of 3 workers have joined after \d+ s: see --join-seconds", done.stderr)


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        done = gt("launch", "-n", 1, "-p", port, "--", *SUM_WORDS)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"127.0.0.1:{port}" in done.stderr


SQUEUE = """#!/bin/sh
count=$(cat {folder}/count 2>/dev/null || echo 0)
echo $((count + 1)) > {folder}/count
case $count in
0) echo PENDING ;;
1) echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1 ;;
2) echo RUNNING; echo loss 0.5 > {file} ;;
3) echo loss 0.25 >> {file} ;;
esac
"""


def played_slurm(folder, exit_code):
    """Programs of Slurm that say of job 4 what a cluster says; the path on which they are."""
    shown = f"echo JobState=X ExitCode={exit_code}" if exit_code else "echo"
    programs = {
        "sbatch": f"#!/bin/sh\ncat > {folder}/script\necho 4\n",
        "squeue": SQUEUE.format(folder=folder, file=folder / "gt-4.out"),
        "scontrol": f"#!/bin/sh\n{shown}\n",
        "scancel": f"#!/bin/sh\necho $@ > {folder}/cancelled\n",
    }
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("exit_code", "status"), [("0:0", 0), ("7:0", 7), ("0:15", 143), (None, 1)]
)
def test_a_job_is_followed_through_a_controller_s_absence(
    exit_code, status, tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("PATH", played_slurm(tmp_path, exit_code))
    monkeypatch.setattr(slurm, "LOOK_SECONDS", 0)
    monkeypatch.setattr(sys, "argv", ["slurm", "4", str(tmp_path / "gt-4.out")])
    assert slurm.main() == status
    assert capfd.readouterr().out == "loss 0.5\nloss 0.25\n"


def test_a_job_is_submitted_followed_and_removed(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "gt", "launch", "--on", "slurm", "-n", "2", "--", *SUM_WORDS],
        env=os.environ | {"PATH": played_slurm(tmp_path, "7:0")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert (done.returncode, done.stdout) == (7, "loss 0.5\nloss 0.25\n"), done.stderr
    assert (tmp_path / "cancelled").read_text() == "--quiet 4\n"
    assert (tmp_path / "script").read_text().startswith("#!/bin/bash\n#SBATCH --job-name=gt\n")


# ---- a cluster that stays ----


def exports(text):
    return dict(re.findall(r"^export (\w+)=(\S+)$", text, re.MULTILINE))


def test_up_and_down(tmp_path):
    cache = {"GT_CACHE_DIR": str(tmp_path)}
    done = gt("up", "-n", 2, "--name", "lab", **cache)
    assert done.returncode == 0, done.stderr
    assert "gt down lab" in done.stderr
    state = tmp_path / "clusters/lab.json"
    assert state.stat().st_mode & 0o777 == 0o600
    pid = int(json.loads(state.read_text())["process"])
    try:
        variables = exports(done.stdout)
        assert set(variables) == {"GT_ADDRESS", "GT_TOKEN"}
        ran = subprocess.run(
            [sys.executable, "-c", SUM],
            env=os.environ | NUMPY | variables, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert ran.stdout == "32.0 2\n", ran.stderr
        again = gt("up", "-n", 2, "--name", "lab", **cache)
        assert exports(again.stdout) == variables
        assert "is up already" in again.stderr
        family = of_launch(pid)
    finally:
        ended = gt("down", "lab", **cache)
    assert ended.returncode == 0, ended.stderr
    assert not [one for one in [pid, *family] if is_alive(one)]
    assert [path.name for path in (tmp_path / "clusters").iterdir()] == ["lab.log"]
    missing = gt("down", "lab", **cache)
    assert (missing.returncode, missing.stderr) == (
        1,
        "gt down: no cluster lab; there are: none\n",
    )


def test_a_cluster_that_does_not_come_up_says_why(tmp_path):
    done = gt("up", "-n", 2, GT_CACHE_DIR=str(tmp_path), GT_KERNELS="wrong")
    assert (done.returncode, done.stdout) == (1, "")
    assert "expected one of auto, off, on" in done.stderr
    assert [path.name for path in (tmp_path / "clusters").iterdir()] == ["gt.log"]


@pytest.mark.fast
def test_a_number_that_another_process_has_now_is_not_ended(tmp_path, monkeypatch):
    monkeypatch.setenv("GT_CACHE_DIR", str(tmp_path))
    cluster = stay.Cluster("old")
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/old.json").write_text(
        json.dumps({"process": str(os.getpid()), "start": "1"})
    )
    assert not cluster.is_up()
    cluster.end()  # this process would get SIGTERM
    assert list((tmp_path / "clusters").iterdir()) == []


@pytest.mark.fast
@pytest.mark.parametrize("name", ["../x", "a b", ""])
def test_names_of_clusters_are_words(name, capsys):
    assert command.down([name]) == 1
    assert "expected letters, digits" in capsys.readouterr().err


# ---- the page ----

PAGE = Path(__file__).resolve().parent.parent / "docs/launching.md"


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
