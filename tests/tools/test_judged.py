"""`tools/judged.py`: a check is left out only where nothing that it reads has changed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import judged  # noqa: E402 - after the path

RECIPES = """
cuda:
    true

emulated:
    true

sanitize:
    true
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with inputs of each check."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "justfile").write_text(RECIPES)
    (tmp_path / "tools").mkdir()
    for folder in ("csrc/cuda", "csrc/cpu", "csrc/emulator", "tests/kernels"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").write_text("one")
    (tmp_path / "csrc/cuda/code.cu").write_text("int x;\n")
    return tmp_path


def test_a_check_without_a_record_runs(checkout: Path) -> None:
    assert not judged.is_judged("cuda", checkout)


@pytest.mark.parametrize(
    ("name", "text", "changed"),
    [
        ("csrc/cuda/file", "two", {"cuda", "emulated", "sanitize"}),
        ("csrc/cuda/new", "", {"cuda", "emulated", "sanitize"}),
        ("csrc/cpu/file", "two", {"sanitize"}),
        ("csrc/cpu/random_fill.h", "two", {"emulated", "sanitize"}),
        ("csrc/emulator/test.cpp", "two", {"emulated", "sanitize"}),
        ("tests/kernels/test_one_kernels.py", "two", {"sanitize"}),
        ("tests/kernels/test_native.py", "two", set()),
        ("justfile", RECIPES.replace("cuda:\n    true", "cuda:\n    false"), {"cuda"}),
        ("csrc/cuda/code.cu", "int x = 1;\n", {"cuda", "emulated", "sanitize"}),
        ("csrc/cuda/code.cu", "// A remark.\nint x;\n", set()),
        ("csrc/cuda/README.md", "A document.", set()),
        ("other", "two", set()),
    ],
)
def test_it_runs_again_where_an_input_changes(
    checkout: Path, name: str, text: str, changed: set[str]
) -> None:
    for check in judged.INPUTS:
        judged.record(check, checkout)
    assert all(judged.is_judged(check, checkout) for check in judged.INPUTS)
    (checkout / name).write_text(text)
    runs = {check for check in judged.INPUTS if not judged.is_judged(check, checkout)}
    assert runs == changed


def test_a_file_that_is_gone_is_a_change(checkout: Path) -> None:
    judged.record("cuda", checkout)
    (checkout / "csrc/cuda/file").unlink()
    assert not judged.is_judged("cuda", checkout)


def test_every_input_exists_and_its_recipe_records_it() -> None:
    for check, inputs in judged.INPUTS.items():
        assert all(any(ROOT.glob(name)) for name in inputs)
        recipe = judged.recipe(check).splitlines()
        assert recipe[-1].split() == ["python", "tools/judged.py", "--record", check]
