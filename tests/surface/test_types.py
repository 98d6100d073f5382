"""Types as the checkers of users' programs see them: every public name, and calls of every family.

mypy and pyright (as basedpyright has it) read one program each; nothing of it runs.
"""

import importlib
import json
import re
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pytest

import gt

ROOT = Path(__file__).resolve().parent.parent.parent
USES = ROOT / "tests/surface/typed/uses.py"
MODULES = (
    "gt", "gt.nn", "gt.nn.functional", "gt.nn.init", "gt.nn.utils", "gt.optim",
    "gt.optim.lr_scheduler", "gt.linalg", "gt.fft", "gt.special", "gt.signal.windows",
    "gt.utils.data", "gt.utils.checkpoint", "gt.autograd", "gt.func", "gt.sparse", "gt.amp",
    "gt.random", "gt.distributions", "gt.distributed", "gt.masked", "gt.cuda", "gt.testing",
    "gt.return_types", "gt.data", "gt.debug", "gt.config", "gt.errors",
)  # fmt: skip
# A function or a value of the user decides, or it is a class of torch: no type is known before.
OPEN = {
    "gt": {"to_torch"},
    "gt.func": {"functional_call", "grad", "hessian", "jacfwd", "jacrev"},
    "gt.cuda": {"get_device_properties"},
    "gt.sparse": {"sum"},
    "gt.nn": {
        "DataParallel.forward", "Module.forward", "ModuleDict.forward", "ModuleList.forward",
        "ParameterDict.forward", "ParameterList.forward", "RNNBase.forward",
        "RNNCellBase.forward",
    },
    "gt.Tensor": {"tolist", "to_sparse"},
    "gt.utils.data": {"default_collate", "default_convert"},
    "gt.utils.checkpoint": {"checkpoint_sequential"},
}  # fmt: skip
# Methods that only say that they are missing.
LACKS = set((ROOT / "gt/compat/missing_methods.txt").read_text().split())

mypy_here = pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
pyright_here = pytest.mark.skipif(
    find_spec("basedpyright") is None, reason="basedpyright is not installed"
)


@pytest.fixture(scope="module", autouse=True)
def stubs_of_a_build():
    """Stubs that every build writes beside the extension modules, and git ignores."""
    subprocess.run([sys.executable, ROOT / "tools/name_stubs.py", ROOT / "gt"], check=True)


def test_a_build_writes_a_stub_for_every_public_module_of_compat():
    written = {path.stem for path in (ROOT / "gt").glob("[a-z]*.pyi")}
    modules = [(name, getattr(gt, name)) for name in dir(gt)]
    found = {
        name
        for name, value in modules
        if isinstance(value, types.ModuleType) and "/compat/" in (value.__file__ or "")
    }
    assert written == found


def names_of(module):
    """The public names of a module, listed or shown by `dir`, that are not another's modules."""
    found = importlib.import_module(module)
    for name in sorted({*getattr(found, "__all__", ()), *dir(found)}):
        value = getattr(found, name)
        foreign = isinstance(value, types.ModuleType) and not value.__name__.startswith("gt")
        if not name.startswith("_") and not foreign and not is_of_python(value):
            yield name


def is_of_python(value):
    """True for names that a module imports from elsewhere: typing, collections, ..."""
    return getattr(value, "__module__", "gt").split(".")[0] in {
        "typing", "collections", "abc", "functools", "contextlib", "dataclasses", "numpy",
    }  # fmt: skip


def program():
    """A program that asks for the type of every public name, and which name is asked where."""
    lines = [f"import {module}" for module in MODULES]
    asked = {}
    for module in MODULES:
        for name in names_of(module):
            lines.append(f"reveal_type({module}.{name})")
            asked[len(lines)] = (module, name)
    members = [
        ("gt.Tensor", name) for name in dir(gt.Tensor) if name[0] != "_" and name not in LACKS
    ]
    members += [
        ("gt.nn", f"{name}.forward")
        for name in dir(gt.nn)
        if isinstance(kind := getattr(gt.nn, name), type) and issubclass(kind, gt.nn.Module)
    ]
    for owner, name in members:
        lines.append(f"reveal_type({owner}.{name})")
        asked[len(lines)] = (owner, name)
    return "\n".join(lines), asked


def run(*command):
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@mypy_here
@pytest.mark.timeout(400)
def test_mypy_knows_every_public_name_and_its_type(tmp_path):
    text, asked = program()
    file = tmp_path / "every_name.py"
    file.write_text(text)
    out = run("mypy", "--strict", "--no-error-summary", file)
    assert len(asked) > 1500
    errors = [line for line in out.splitlines() if ": error:" in line]
    assert not errors, "\n".join(errors)
    shown = re.findall(r'every_name\.py:(\d+): note: Revealed type is "(.*)"', out)
    assert len(shown) == len(asked)
    untyped = {}
    for line, kind in shown:
        module, name = asked[int(line)]
        if is_open(kind):
            untyped.setdefault(module, set()).add(name)
    assert {k: sorted(v) for k, v in untyped.items()} == {k: sorted(v) for k, v in OPEN.items()}


def is_open(kind):
    """True where a type tells nothing: Any, object, or a function that returns one of them."""
    return kind in ("Any", "builtins.object", "object") or kind.endswith(("-> Any", "-> object"))


@mypy_here
@pytest.mark.timeout(400)
def test_mypy_finds_the_types_of_calls():
    out = run("mypy", "--strict", "--no-error-summary", USES)
    assert not out, out


@pyright_here
@pytest.mark.timeout(400)
def test_pyright_finds_the_types_of_calls_and_every_public_name(tmp_path):
    text, asked = program()
    file = tmp_path / "every_name.py"
    file.write_text(text)
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)], "pythonVersion": "3.11"}
    settings["include"] = [str(file), str(USES)]
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    out = json.loads(run("basedpyright", "--project", tmp_path, "--outputjson"))
    found = out["generalDiagnostics"]
    errors = [
        (x["range"]["start"]["line"] + 1, x["message"]) for x in found if x["severity"] == "error"
    ]
    assert not errors, errors
    assert out["summary"]["filesAnalyzed"] == 2
    shown = {x["range"]["start"]["line"] + 1 for x in found if "Type of " in x["message"]}
    assert shown == asked.keys()
