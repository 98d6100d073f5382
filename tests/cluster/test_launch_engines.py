"""`gt launch` by real engines on this machine: each where it is installed, with --slow.

Their texts are in test_launch_texts.py, and what needs no engine in test_launch.py.
"""

import contextlib
import getpass
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = """
import gt
print(gt.distribute(gt.ones(8, 4), dim=0).sum().item(), gt.debug.stats()["workers"])
"""
WAITS = "echo up; exec sleep 600"
FAILING = {"GT_KERNELS": "wrong"}
REASON = "GT_KERNELS=wrong: expected one of auto, off, on"


def needs(*programs):
    missing = [name for name in programs if shutil.which(name, path=PATH) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"


def launch(*words, folder=None, seconds=200, **settings):
    """`gt launch … -- PROGRAM`, to its end."""
    path = f"{ROOT}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    return subprocess.run(
        [sys.executable, "-m", "gt", "launch", *words, "--", sys.executable, "-c", PROGRAM],
        env=os.environ | {"GT_BACKEND": "numpy", "PYTHONPATH": path, "PATH": PATH} | settings,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def check(*words, workers, **settings):
    """The program has all workers; where they cannot start, the launch says why."""
    done = launch(*words, "-n", str(workers), **settings)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, [f"32.0 {workers}"]), done.stderr
    failed = launch(*words, "-n", str(workers), **settings, **FAILING)
    assert failed.returncode == 1
    assert "has ended" in failed.stderr
    assert "its last words:" in failed.stderr
    assert REASON in failed.stderr


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_eight_workers_of_pytorch_within_fifteen_seconds_are_measured(record_property):
    """The claim is the issue's; a loaded machine is no fault, so the figure is kept, not judged."""
    start = time.monotonic()
    done = launch("-n", "8", GT_BACKEND="torch")
    record_property("seconds", time.monotonic() - start)
    assert done.stdout == "32.0 8\n", done.stderr


@needs("torchrun")
def test_torchrun():
    check("--on", "torchrun", workers=2)


@needs("mpirun")
def test_mpirun():
    options = ["--option=--oversubscribe"]
    options += ["--option=--allow-run-as-root"] if os.getuid() == 0 else []
    check("--on", "mpi", *options, workers=3)


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="not installed: ray")
def test_ray(tmp_path):
    words = ["--on", "ray", "--set", "address=local", "--set", "cpus=0.25", "--gpus", "0"]
    check(*words, "--host", "127.0.0.1", workers=3, folder=tmp_path)


# ---- ssh ----


@pytest.fixture
def ssh_server(tmp_path):
    """An sshd of our own on a free port; the options by which its clients reach it."""
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name]
        subprocess.run(key, check=True)
    shutil.copy(tmp_path / "user.pub", tmp_path / "authorized")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # which the package's service makes
    port = free_port()
    lines = [
        f"ListenAddress 127.0.0.1:{port}",
        f"HostKey {tmp_path}/host",
        f"AuthorizedKeysFile {tmp_path}/authorized",
        "PidFile none",
        "StrictModes no",
        "UsePAM no",
        "PermitRootLogin yes",
    ]
    (tmp_path / "config").write_text("\n".join(lines) + "\n")
    server = subprocess.Popen(
        [shutil.which("sshd", path=PATH), "-D", "-e", "-f", tmp_path / "config"],
        stderr=subprocess.PIPE,
    )
    options = ["-p", port, "-i", tmp_path / "user", "-l", getpass.getuser()]
    options += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    options += ["-o", "LogLevel=ERROR"]
    until(lambda: answers(port))
    yield [f"--option={option}" for option in options]
    server.terminate()
    server.communicate()


def answers(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


@needs("ssh", "sshd", "ssh-keygen")
def test_ssh(ssh_server):
    words = ["--on", "ssh", "--hosts", "127.0.0.1:2,localhost:1", "--env", "PYTHONPATH"]
    check(*words, *ssh_server, workers=3)


@needs("ssh", "sshd", "ssh-keygen")
def test_workers_by_ssh_end_with_the_launch(ssh_server, tmp_path):
    code = "import gt; print(gt.ones(2).sum().item(), flush=True); import time; time.sleep(60)"
    words = ["--on", "ssh", "--hosts", "127.0.0.1", "-n", "2", "--env", "PYTHONPATH", *ssh_server]
    words += ["--env", "GT_CACHE_DIR"]
    path = {"GT_BACKEND": "numpy", "PYTHONPATH": str(ROOT), "PATH": PATH}
    mark = {"GT_CACHE_DIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "gt", "launch", *words, "--", sys.executable, "-c", code],
        env=os.environ | path | mark,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "2.0\n"
    assert len(of_mark(tmp_path)) >= 3
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(lambda: not [command for command in of_mark(tmp_path) if "gt.worker" in command])


def of_mark(folder):
    """Command lines of processes that have the folder as their cache."""
    commands = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"GT_CACHE_DIR={folder}".encode() in (entry / "environ").read_bytes():
                commands.append((entry / "cmdline").read_text().replace("\0", " "))
    return commands


# ---- Slurm ----

SLURM = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@pytest.fixture
def slurm(tmp_path):
    """A cluster of one node whose daemons end with the test; the variables of its clients."""
    host = socket.gethostname().split(".")[0]
    facts = {"host": host, "user": getpass.getuser(), "folder": tmp_path}
    facts |= {"controller": free_port(), "daemon": free_port()}
    (tmp_path / "slurm.conf").write_text(SLURM.format(**facts))
    for name in ("state", "spool"):
        (tmp_path / name).mkdir()
    key = tmp_path / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    munge = ["munged", "--foreground", "--force", f"--key-file={key}"]
    munge += [f"--socket={tmp_path}/munge.socket", f"--pid-file={tmp_path}/munge.pid"]
    munge += [f"--log-file={tmp_path}/munge.log", f"--seed-file={tmp_path}/munge.seed"]
    variables = {"SLURM_CONF": str(tmp_path / "slurm.conf"), "PATH": PATH}
    with (tmp_path / "daemons.log").open("wb") as log:
        daemons = [
            subprocess.Popen(words, env=os.environ | variables, stdout=log, stderr=log)
            for words in (munge, ["slurmctld", "-D"], ["slurmd", "-D", "-N", host])
        ]
    idle = ["sinfo", "--noheader", "--format=%t"]
    until(
        lambda: (
            "idle"
            in subprocess.run(
                idle, env=os.environ | variables, capture_output=True, text=True
            ).stdout
        ),
        60,
    )
    yield variables
    for daemon in reversed(daemons):
        daemon.terminate()
        daemon.wait()


@needs("munged", "slurmctld", "slurmd", "sbatch", "srun")
def test_slurm(slurm, tmp_path):
    words = ["--on", "slurm", "--gpus", "0", "--host", "127.0.0.1"]
    done = launch(*words, "-n", "3", folder=tmp_path, **slurm)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["32.0 3"]), (
        done.stdout + done.stderr
    )
    failed = launch(*words, "-n", "3", folder=tmp_path, **slurm, **FAILING)
    assert failed.returncode == 1
    assert REASON in failed.stdout  # the job's output
    cancelled = subprocess.Popen(
        [sys.executable, "-m", "gt", "launch", *words, "-n", "1", "--", "sh", "-c", WAITS],
        env=os.environ | {"GT_BACKEND": "numpy", "PYTHONPATH": str(ROOT)} | slurm,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    while "up" not in cancelled.stdout.readline():
        pass
    cancelled.send_signal(signal.SIGINT)
    cancelled.communicate(timeout=60)
    assert cancelled.returncode != 0
    left = subprocess.run(
        ["squeue", "--states=PENDING,RUNNING", "--noheader"],
        env=os.environ | slurm,
        capture_output=True,
    )
    assert left.stdout == b""


@needs("munged", "slurmctld", "slurmd", "sbatch", "srun")
def test_a_cluster_of_slurm_stays(slurm, tmp_path):
    variables = os.environ | slurm | {"GT_CACHE_DIR": str(tmp_path), "GT_BACKEND": "numpy"}
    variables["PYTHONPATH"] = str(ROOT)

    def gt(*words):
        return subprocess.run(
            [sys.executable, "-m", "gt", *words],
            env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    taken = gt("up", "--on", "slurm", "-n", "2", "--gpus", "0")
    assert "slurm has taken" in taken.stderr
    until((tmp_path / "clusters/gt.address").exists, 60)
    shown = gt("up").stdout
    exports = dict(line.removeprefix("export ").split("=") for line in shown.splitlines())
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=variables | exports, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ran.stdout == "32.0 2\n", ran.stderr
    assert gt("down").returncode == 0
    asked = ["squeue", "--noheader", "--states=all", "--format=%T"]
    until(
        lambda: (
            subprocess.run(asked, env=variables, capture_output=True, text=True).stdout.split()
            in (["CANCELLED"], [])
        ),
        60,
    )
