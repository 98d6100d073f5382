"""`gt launch`, `gt up` and `gt down` as processes: what they start, how it ends, what is left.

Texts and command lines are in test_launch_texts.py, engines themselves in test_launch_engines.py.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster, of_group, until
from launched import NUMPY, SUM, SUM_WORDS, gt, is_alive, launched, of_launch

from gt.launch import command, slurm, stay, watch

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


def test_one_that_is_followed_has_ended_when_nobody_has_its_output():
    lines = []
    code = """
import os, time
if os.fork():
    os.kill(os.getpid(), 9)
print("on", flush=True)
while True: time.sleep(1)
"""
    one = watch.Watch(lambda _, line: lines.append(line))
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True
    )
    one.add("it", process, os.dup(process.stdout.fileno()), is_followed=True)
    process.stdout.close()
    until(lambda: one.step(0.01) or (lines and process.poll() is not None))
    assert one.step(0.01) == []
    assert len(of_group(process.pid)) == 1
    (ended,) = one.stop()
    assert ended.sentence().startswith(f"it (process {process.pid}) has ended by SIGKILL")
    assert not of_group(process.pid)


def test_who_does_not_end_is_killed():
    one, _, lines = watched(
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\n"
        "while True: time.sleep(1)"
    )
    until(lambda: one.step(0.01) or lines)
    (ended,) = one.stop(0.3)
    assert ended.code == -signal.SIGKILL


# ---- gt launch on this machine ----


def test_a_policy_is_the_dispatchers(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("default: {memory: 1 MiB}\n")
    code = """
import gt
try:
    gt.ones(1024, 1024).sum().item()
except gt.OutOfMemoryError as error:
    print("quota of 1.0 MiB" in str(error))
"""
    words = ("--policy", policy, "--", sys.executable, "-c", code)
    done = gt("launch", "-n", 1, *words)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
    policy.write_text("default: {memroy: 1 MiB}\n")
    done = gt("launch", "-n", 1, *words)
    assert done.returncode == 1
    assert 'policy.yaml:1: unknown key "memroy"; did you mean memory?' in done.stderr
    done = gt("launch", "-n", 1, "--policy", tmp_path / "none.yaml", "--", "true")
    assert f"--policy: there is no file {tmp_path / 'none.yaml'}" in done.stderr


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


GOES_ON = """
import gt, pathlib, time
x = gt.ones(2)
print(x.sum().item(), flush=True)
while not pathlib.Path({path!r}).exists():
    time.sleep(0.01)
print((x + x).sum().item())
"""
TAKEOVER = "goes on: nothing was lost"


def kill_dispatcher(launch):
    """Kills the dispatcher of a launch; returns the group that it led."""
    family = of_launch(launch.pid)
    (dispatcher,) = [
        pid for pid in family if of_group(pid) and "gt-standby" in of_group(pid).values()
    ]
    os.kill(dispatcher, signal.SIGKILL)
    return dispatcher


def test_a_program_outlives_the_dispatcher_of_its_launch(tmp_path):
    code = GOES_ON.format(path=str(tmp_path / "go"))
    words = ("--standby", "-n", "2", "--", sys.executable, "-c", code)
    with launched(*words) as process:
        assert process.stdout.readline() == "2.0\n"
        group = kill_dispatcher(process)
        (tmp_path / "go").touch()
        printed, said = process.communicate(timeout=40)
    assert (printed, process.returncode) == ("4.0\n", 0), said
    assert said.count(TAKEOVER) == 1, said
    until(lambda: not of_group(group))


def test_a_killed_launch_takes_the_standby_of_its_dispatcher_with_it(tmp_path):
    code = GOES_ON.format(path=str(tmp_path / "go"))
    words = ("--standby", "-n", "1", "--", sys.executable, "-c", code)
    with launched(*words) as process:
        assert process.stdout.readline() == "2.0\n"
        family = of_launch(process.pid)
        group = kill_dispatcher(process)
        lines = iter(process.stderr.readline, "")
        assert any(TAKEOVER in line for line in lines)
        assert "gt-standby" in of_group(group).values()
        process.kill()
        process.wait()
        until(lambda: not of_group(group))
        (tmp_path / "go").touch()
        until(lambda: not [pid for pid in family if is_alive(pid)])


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


THREADED = """
import sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
from gt.worker.__main__ import main
sys.exit(main(["--count", "2", "--id", "4", "-p", sys.argv[1], "--backend", "numpy"]))
"""


def test_a_process_with_threads_starts_each_worker_by_itself():
    with Cluster(workers=0) as cluster:
        process = subprocess.Popen(
            [sys.executable, "-c", THREADED, cluster.port], stderr=subprocess.PIPE, text=True
        )
        lines = [process.stderr.readline() for _ in range(3)]
        assert "a thread runs where workers would be forked" in lines[0]
        assert {line.partition(" has joined ")[0] for line in lines[1:]} == {
            "gt.worker: worker 4",
            "gt.worker: worker 5",
        }
        assert cluster.run("print(gt.ones(3).sum().item())") == "3.0\n"
    assert process.wait(20) == 0
    process.stderr.close()


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
    variables = {}
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
        ended = gt("down", "lab", **cache, **variables)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == "gt down: lab has ended; type: unset GT_ADDRESS GT_TOKEN\n"
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
