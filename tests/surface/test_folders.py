"""Modules in gt/compat, gt/tensors and gt/sessions: programs import each directly below `gt`."""

import importlib
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import gt
from gt.compat import FOLDERS

HOME = Path(gt.__file__).parent
MODULES = [
    f"gt.{folder}.{path.stem}"
    for folder in FOLDERS
    for path in sorted((HOME / folder).iterdir())
    if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem != "__init__"
]


def test_no_module_has_the_name_of_another():
    short = [name.rpartition(".")[2] for name in MODULES]
    short += [path.name.partition(".")[0] for path in HOME.iterdir() if path.suffix != ".pyi"]
    assert [name for name, count in Counter(short).items() if count > 1] == []


def test_both_names_of_a_module_are_one_object():
    program = """
import importlib, sys
for name in sys.argv[1:]:
    short = "gt." + name.split(".", 2)[2]
    second, first = importlib.import_module(name), importlib.import_module(short)
    assert second is first, name
    assert first.__name__ == first.__spec__.name == short, name
"""
    inside = ["gt.compat.sparse.matrix", "gt.compat.cpu.amp", "gt.tensors.aten.call"]
    # The second names first, as in GT's own code.
    command = [sys.executable, "-c", program, *inside, *reversed(MODULES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_module_that_imports_itself_by_its_second_name_loads():
    program = (
        "import sys, gt.compat.sparse.matrix as second, gt; assert gt.sparse.matrix is second; "
    )
    program += "assert sys.modules['gt.compat.sparse'] is gt.sparse"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_is_missing_by_the_name_that_was_asked_for():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'gt\.compat\.nosuch'"):
        importlib.import_module("gt.compat.nosuch")


def test_pickles_and_texts_have_the_names_of_programs():
    assert b"gt.size" in pickle.dumps(gt.Size((1, 2)))
    assert gt.Size.__module__ == "gt.size"
    assert repr(gt.device).startswith("<class 'gt.devices.device'")
    assert gt.mps.is_available.__module__ == "gt.mps"
    assert gt.linalg.__name__ == "gt.linalg"


def test_a_module_runs_as_a_program():
    done = subprocess.run([sys.executable, "-m", "gt.server", "--help"], capture_output=True)
    assert done.returncode == 0
    assert b"dispatcher" in done.stdout


def test_import_of_gt_loads_no_module_for_its_own_sake():
    program = "import gt, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "gt.amp.casting" in loaded
    assert not loaded & {"torch", "gt.nn", "gt.optim", "gt.mps", "gt.compat.mps", "gt.fft"}
