"""Files of tests that run side by side: each test in one scope, the longest files first."""

import subprocess
import sys
from pathlib import Path

import file_order
import pytest
from file_order import LONGEST, ROOT, SHARES, in_order, scope

OP_DB = "tests/operators/test_op_db.py"
PLACEMENTS = "tests/layouts/test_placements.py"


@pytest.mark.fast
def test_every_file_that_is_named_exists():
    assert [file for file in (*LONGEST, *SHARES) if not (ROOT / file).exists()] == []
    assert len(set(LONGEST)) == len(LONGEST)


@pytest.mark.fast
def test_the_longest_files_start_first_then_those_with_most_tests():
    identifiers = [
        "tests/test_a.py::test_one",
        *(f"tests/test_b.py::test_{number}" for number in range(3)),
        f"{LONGEST[-1]}::test_one",
        f"{LONGEST[2]}::test_one",
    ]
    assert in_order(identifiers) == [LONGEST[2], LONGEST[-1], "tests/test_b.py", "tests/test_a.py"]


@pytest.mark.fast
def test_a_number_of_workers_is_one_share_with_the_test_that_looks_back_at_it():
    shares = {
        scope(f"{PLACEMENTS}::{name}")
        for name in ("test_entry[2 workers-add]", "test_row[2 workers-add]")
    }
    assert shares == {scope(f"{PLACEMENTS}::test_everything_is_met[2 workers]")}
    assert shares != {scope(f"{PLACEMENTS}::test_everything_is_met[3 workers]")}


@pytest.mark.fast
def test_entries_of_op_db_are_shared_out():
    shares = {scope(f"{OP_DB}::test_entry_is_as_in_pytorch[{number}]") for number in range(100)}
    assert len(shares) == file_order.OP_DB_SHARES


def test_every_test_runs_once_beside_others(tmp_path: Path):
    """A small run of two processes, by the hooks of conftest.py."""
    pytest.importorskip("xdist")
    (tmp_path / "conftest.py").write_text(
        "import file_order, pytest\n"
        f"from importlib import util\n"
        f"spec = util.spec_from_file_location('rules', {str(ROOT / 'tests/conftest.py')!r})\n"
        "rules = util.module_from_spec(spec)\n"
        "spec.loader.exec_module(rules)\n"
        "pytest_addoption = rules.pytest_addoption\n"
        "pytest_collection_modifyitems = rules.pytest_collection_modifyitems\n"
        "pytest_xdist_make_scheduler = rules.pytest_xdist_make_scheduler\n"
    )
    folder = tmp_path / "tests/operators"
    folder.mkdir(parents=True)
    body = "import os, pathlib, pytest\n@pytest.mark.parametrize('n', range({}))\ndef test_x(n):\n"
    body += "    process = os.environ['PYTEST_XDIST_WORKER']\n"
    body += "    with pathlib.Path('ran').open('a') as file:\n"
    body += "        file.write(f'{} {{n}} {{process}}\\n')\n"
    (folder / "test_op_db.py").write_text(body.format(40, "shared"))
    for number in range(5):
        (folder / f"test_{number}.py").write_text(body.format(number + 1, number))
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {ROOT / 'tests/tools'} {ROOT / 'tests/cluster'} "
        f"{ROOT / 'tests/kernels'}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.rsplit(" ", 1) for line in (tmp_path / "ran").read_text().splitlines()]
    ran = sorted(test for test, _ in lines)
    expected = [f"shared {n}" for n in range(40)]
    expected += [f"{number} {n}" for number in range(5) for n in range(number + 1)]
    assert ran == sorted(expected)
    assert {worker for test, worker in lines if test.startswith("shared")} == {"gw0", "gw1"}
