"""`mpirun -np 2 python examples/gpt2_tp_test.py`: rank 0 is the program, the others are workers.

Where there is no mpirun, the test plays it: it starts the ranks with the variables of Open MPI.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples" / "gpt2_tp_test.py"
STEPS = ("--steps", "3")
MPIRUN = [
    "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca",
    "btl_vader_single_copy_mechanism", "none",
]  # fmt: skip
JOIN = "import gt\ngt.distributed.init_process_group('mpi')\n"


def environment(folder, **settings):
    names = {"PYTHONPATH": str(ROOT), "GT_CACHE_DIR": str(folder), "GT_ATEN": "off"}
    return os.environ | names | {"GT_BACKEND": "native"} | settings


def start(rank, size, *words, folder, **settings):
    """One rank, as Open MPI starts it on a host with all of them, unless `settings` say else."""
    place = {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(size),
        "PMIX_NAMESPACE": folder.name,
    }
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        env=environment(folder, **(place | settings)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ends(ranks):
    """Status, output and errors of each, in the order of ranks."""
    results = []
    for rank in ranks:
        output, errors = rank.communicate(timeout=50)
        results.append((rank.returncode, output, errors))
    return results


def losses(output):
    return re.findall(r"loss (\S+)", output)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Output of the example as a plain program with one worker."""
    done = subprocess.run(
        [sys.executable, EXAMPLE, *STEPS],
        env=environment(tmp_path_factory.mktemp("cache")),
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert done.stdout.startswith("1 workers\n")
    assert len(losses(done.stdout)) == 3
    return done.stdout


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")
@pytest.mark.parametrize(("ranks", "backend"), [
    (2, "native"),
    pytest.param(3, "native", marks=pytest.mark.slow),
    pytest.param(2, "pytorch", marks=pytest.mark.slow),
])  # fmt: skip
def test_p4a_mpirun_starts_the_program_once(ranks, backend, alone, tmp_path):
    done = subprocess.run(
        [*MPIRUN, "-np", str(ranks), sys.executable, EXAMPLE, *STEPS],
        env=environment(tmp_path, GT_BACKEND=backend),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{ranks} workers"
    assert len(lines) == 5  # every line once
    assert losses(done.stdout) == losses(alone)
    assert f"head shard(0)@{list(range(ranks))}".replace(" ", "") in done.stdout.replace(" ", "")
    assert f"({backend}, process" in done.stderr


def test_p4a_ranks_find_each_other_in_any_order(alone, tmp_path):
    started = {rank: start(rank, 2, EXAMPLE, *STEPS, folder=tmp_path) for rank in (1, 0)}
    (status, output, errors), (other, nothing, joined) = ends([started[0], started[1]])
    assert (status, other) == (0, 0), errors + joined
    assert output.startswith("2 workers\n")
    assert losses(output) == losses(alone)
    assert nothing == ""


def test_a_program_of_mpich_is_one_too(tmp_path):
    code = JOIN + "print(gt.distributed.get_world_size(), gt.ones(2).sum().item())"
    names = {"OMPI_COMM_WORLD_RANK": "", "OMPI_COMM_WORLD_SIZE": ""}
    started = []
    for rank in range(2):
        place = environment(tmp_path, PMI_RANK=str(rank), PMI_SIZE="2")
        place = {name: value for name, value in place.items() if name not in names}
        command = [sys.executable, "-c", code]
        started.append(subprocess.Popen(command, env=place, stdout=subprocess.PIPE, text=True))
    outputs = [one.communicate(timeout=50)[0] for one in started]
    assert outputs == ["2 2.0\n", ""]
    assert [one.returncode for one in started] == [0, 0]


@pytest.mark.parametrize(("end", "expected"), [
    ("raise ValueError('no data')", (1, "ValueError: no data\n")),
    ("import os; os.kill(os.getpid(), 9)", (-9, "")),
])  # fmt: skip
def test_all_ranks_end_with_a_program_that_fails(end, expected, tmp_path):
    (status, _, errors), (other, _, _) = ends(
        [start(rank, 2, "-c", JOIN + end, folder=tmp_path) for rank in range(2)]
    )
    assert (status, other) == (expected[0], 0)
    assert errors.endswith(expected[1])


def test_a_folder_of_another_users_is_not_used(tmp_path):
    (tmp_path / f"gt-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"gt-{os.getuid()}").chmod(0o777)
    ((status, _, errors),) = ends([start(1, 2, "-c", JOIN, folder=tmp_path, TMPDIR=str(tmp_path))])
    assert status == 1
    assert "not a folder that only this user may use" in errors


def test_ranks_of_several_hosts_meet_by_an_address_and_a_token(tmp_path):
    code = JOIN + "print(gt.distributed.get_world_size(), gt.ones(2).sum().item())"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hosts = {"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "GT_TOKEN": "secret"}
    ranks = [
        start(rank, 2, "-c", code, folder=tmp_path, MASTER_PORT=str(port), **hosts)
        for rank in range(2)
    ]
    (status, output, errors), (other, _, joined) = ends(ranks)
    assert (status, other) == (0, 0), errors + joined
    assert output == "2 2.0\n"


@pytest.mark.parametrize("rank", [0, 1])
def test_without_them_several_hosts_are_an_error_that_names_the_variables(rank, tmp_path):
    alone = start(rank, 2, "-c", JOIN, folder=tmp_path, OMPI_COMM_WORLD_LOCAL_SIZE="1")
    ((status, _, errors),) = ends([alone])
    assert status == 1
    assert re.search("ConfigError: .*MASTER_ADDR.*MASTER_PORT and GT_TOKEN", errors)


def test_a_number_of_mpiruns_that_is_none(tmp_path):
    ((status, _, errors),) = ends([start("x", 2, "-c", JOIN, folder=tmp_path)])
    assert status == 1
    assert "ConfigError: OMPI_COMM_WORLD_RANK" in errors
