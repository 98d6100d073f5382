"""tools/new_op.py scaffolds an operator that the generator takes and that compiles, in a copy."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="tools/ need tomllib")

ROOT = Path(__file__).resolve().parent.parent
COPIED = ["Cargo.toml", "Cargo.lock", "ops.toml", "rust-toolchain.toml", "rustfmt.toml"]
COPIED += ["clippy.toml", "crates", "docs", "gt", "tools", "tests/harness"]
PROBE = [
    *("hypot_probe", "self", "other", "--aten=hypot", "--torch=torch.hypot", "--numpy=np.hypot"),
    *("--dtype=float", "--saves", "self", "other", "out", "--gradient=self=g * s.self / s.out"),
    *("--gradient=other=g * s.other / s.out", "--doc=The square root of the sum of the squares."),
]


def _copy(folder):
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("target", "*.so"))
        else:
            shutil.copy(source, folder)
    return folder


def _run(folder, *command):
    environment = os.environ | {"CARGO_TARGET_DIR": str(ROOT / "target" / "new_op")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


@pytest.fixture
def checkout(tmp_path):
    return _copy(tmp_path)


def _changed(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in [folder / "ops.toml", *folder.rglob("*.py"), *folder.rglob("*.rs")]
        if path.read_bytes() != (ROOT / path.relative_to(folder)).read_bytes()
    }


def test_dry_run_changes_nothing(checkout):
    done = _run(checkout, sys.executable, "tools/new_op.py", *PROBE, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert 'name = "hypot_probe"' in done.stdout
    assert _changed(checkout) == {}


@pytest.mark.timeout(300)
def test_scaffold_is_taken_by_the_generator_and_compiles(checkout):
    for command in (
        [sys.executable, "tools/new_op.py", *PROBE],
        [sys.executable, "tools/gen.py"],
        [sys.executable, "tools/gen.py", "--check"],
        ["cargo", "check", "--quiet", "--package", "gt-protocol"],
    ):
        done = _run(checkout, *command)
        assert done.returncode == 0, done.stdout + done.stderr
    changed = _changed(checkout)
    kernels = {"gt/worker/torch_elementwise.py", "gt/worker/reference_elementwise.py"}
    assert kernels | {"ops.toml", "gt/gradients/elementwise.py"} <= set(changed)
    for name, text in changed.items():
        if name.endswith(".py"):
            ast.parse(text)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["add", "self", "--doc", "x"], "ops.toml has a row 'add' already"),
        (["a-b", "self", "--doc", "x"], "not a name: 'a-b'"),
        (["probe", "self", "--doc", "x", "--gradient", "other=g"], "--gradient takes"),
        (["probe", "self", "--doc", "x", "--saves", "other"], "--saves takes names of"),
    ],
)
def test_a_wrong_command_line_is_told(arguments, error):
    done = _run(ROOT, sys.executable, "tools/new_op.py", *arguments, "--dry-run")
    assert done.returncode == 1
    assert error in done.stderr
