"""tools/new_op.py scaffolds operators of each family in a copy: without Rust, as PyTorch's are."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="tools/ need tomllib")

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = ROOT / "target"  # dependencies are built there already: `just rust`
COPIED = ["Cargo.toml", "Cargo.lock", "ops.toml", "rust-toolchain.toml", "rustfmt.toml"]
COPIED += ["clippy.toml", "crates", "docs", "gt", "tools", "tests", "pyproject.toml"]
# Arguments in the form of a command line.
PROBES = [
    shlex.split(line)
    for line in (
        """hypot_probe self other --aten hypot --torch torch.hypot --numpy np.hypot --dtype float
        --gradient 'self=g * self / out' --gradient 'other=g * other / out'
        --doc 'The square root of the sum of the squares.'""",
        """sinh_probe self --aten sinh --torch torch.sinh --numpy np.sinh --dtype float
        --column 'monotone=["self"]' --gradient 'self=g * sqrt(out * out + 1)'
        --doc 'Hyperbolic sine.'""",
        """nansum_probe self --family reduce --aten nansum --dtype first
        --torch 'lambda x, dim, keepdim: x.nansum(dim, keepdim)'
        --numpy 'lambda x, dim, keepdim: np.nansum(x, dim, keepdims=keepdim)'
        --attr dim:ints --attr keepdim:bool --column 'combines="sum"'
        --gradient 'self=spread(g, self, dim) * logical_not(isnan(self))'
        --sample '((1,), False)' --sample '((0, 2), True)' --doc 'Sum of what is a number.'""",
        """narrow_probe self --family view --aten narrow --torch Tensor.narrow
        --numpy 'lambda x, dim, *part: x[_along(x.ndim, dim, slice(part[0], sum(part)))]'
        --attr dim:int --attr start:int --attr length:int --column 'view="always"'
        --column 'strided.dims=["dim"]' --column 'strided.sizes="set(sizes, dim, length)"'
        --column 'strided.errors=[["start + length > sizes[dim]", "start {start} is too large"]]'
        --column 'strided.strides="strides"' --column 'strided.offset="start * strides[dim]"'
        --gradient
        'self=added_back(g, self, narrow_probe(element_numbers(self), dim, start, length))'
        --sample '(1, 1, 2)' --sample '(-1, 0, 3)' --doc 'Some indices of a dimension.'""",
        """windows_probe self --family view --aten unfold --torch Tensor.unfold --numpy _unfold
        --attr dim:int --attr size:int --attr step:int --column 'view="overlapping"'
        --column 'strided.dims=["dim"]'
        --column 'strided.sizes="[*set(sizes, dim, (sizes[dim] - size) // step + 1), size]"'
        --column 'strided.strides="[*set(strides, dim, strides[dim] * step), strides[dim]]"'
        --gradient 'self=added_back(g, self, windows_probe(element_numbers(self), dim, size, step))'
        --sample '(1, 2, 1)' --sample '(-1, 3, 2)' --doc 'Windows along a dimension.'""",
    )
]
NAMES = [probe[0] for probe in PROBES]
WRITTEN = {
    *("ops.toml", "tests/operators/samples.py"),
    *(f"gt/worker/pytorch/{name}.py" for name in ("elementwise", "reductions", "indexing")),
    *(f"gt/worker/reference/{name}.py" for name in ("elementwise", "reductions", "indexing")),
}
BUILD_SECONDS_MAX = 900  # with nothing built before


def _copy(folder):
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("target", "*.so"))
        else:
            shutil.copy(source, folder)
    return folder


def _run(folder, *command):
    environment = os.environ | {"CARGO_TARGET_DIR": str(TARGET), "PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def _succeeds(folder, *command):
    done = _run(folder, *command)
    assert done.returncode == 0, f"{command}: {(done.stdout + done.stderr)[-3000:]}"


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
    done = _run(checkout, sys.executable, "tools/new_op.py", *PROBES[0], "--dry-run")
    assert done.returncode == 0, done.stderr
    assert 'name = "hypot_probe"' in done.stdout
    assert _changed(checkout) == {}


def test_the_commands_of_the_page_are_taken(checkout):
    """Each under another name, for two of the operators are there by now."""
    page = (ROOT / "docs/adding_an_op.md").read_text(encoding="utf-8")
    commands = re.findall(r"python tools/new_op\.py (.*?)\n *```", page, re.DOTALL)
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command.replace("\\\n", " ").replace(" --dry-run", ""))
        name = f"{words[0]}_page"
        words = [word.replace(f"{words[0]}(element", f"{name}(element") for word in words]
        _succeeds(checkout, sys.executable, "tools/new_op.py", name, *words[1:])
    _succeeds(checkout, sys.executable, "tools/gen.py")


@pytest.mark.timeout(BUILD_SECONDS_MAX)
def test_an_operator_of_each_family_touches_no_rust_and_is_as_in_pytorch(checkout):
    """Rows are added to a copy; it is generated, built once and compared with PyTorch."""
    pytest.importorskip("torch")
    for probe in PROBES:
        _succeeds(checkout, sys.executable, "tools/new_op.py", *probe)
    for option in ([], ["--check"]):
        _succeeds(checkout, sys.executable, "tools/gen.py", *option)
    changed = _changed(checkout)
    written = {name for name, text in changed.items() if "Generated by" not in text[:200]}
    assert written == WRITTEN
    for name, text in changed.items():
        if name.endswith(".py"):
            ast.parse(text)
    _succeeds(checkout, "cargo", "build", "--quiet", "--package", "gt-python")
    shutil.copy(TARGET / "debug/libgt_core.so", checkout / "gt/_core.abi3.so")
    for library in (ROOT / "gt").glob("_kernels*.so"):
        shutil.copy(library, checkout / "gt")
    _succeeds(checkout, sys.executable, "tests/operators/new_op_probes.py")
    selected = " or ".join(NAMES)
    tests = [f"tests/operators/test_{name}.py" for name in ("kernels", "tables")]
    options = ["-q", "-p", "no:cacheprovider", "-k", f"({selected}) and not docs"]
    _succeeds(checkout, sys.executable, "-m", "pytest", *tests, *options)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["add", "self", "--doc", "x"], "ops.toml has a row 'add' already"),
        (["a-b", "self", "--doc", "x"], "not a name: 'a-b'"),
        (["probe", "self", "--doc", "x", "--gradient", "other=g"], "--gradient takes"),
        (["probe", "self", "--doc", "x", "--family", "view"], "needs --numpy and --sample"),
    ],
)
def test_a_wrong_command_line_is_told(arguments, error):
    done = _run(ROOT, sys.executable, "tools/new_op.py", *arguments, "--dry-run")
    assert done.returncode == 1
    assert error in done.stderr
