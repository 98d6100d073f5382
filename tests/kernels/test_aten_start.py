"""The helper is compiled once, checked before it is used, and never missed.

What it computes is in tests/kernels/test_aten_rows.py.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture

from gt import config  # noqa: E402
from gt.worker.aten import build, compiling, library, start  # noqa: E402
from gt.worker.aten.trial import Trial  # noqa: E402

# A compiler that writes its own output, and says how often it has been called.
COMPILER = """\
#!/bin/sh
echo called >> "$(dirname "$0")/calls"
if [ "$1" = --version ]; then echo "toy 1"; exit 0; fi
while [ "$1" != -o ]; do shift; done
sleep 0.2
echo made > "$2"
"""
PROGRAM = """
import gt
x = gt.arange(6.0).reshape(2, 3)
print(((x @ x.t() + 1).relu().sum() / 7).item())
print([row["aten_calls"] for row in gt.debug.get_worker_stats()])
"""


def compiler(folder: pathlib.Path, text: str = COMPILER) -> pathlib.Path:
    path = folder / "toy-c++"
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(**settings: str) -> tuple[str, list[int], str]:
    """The program's number, calls in C++ by worker, and what its worker says."""
    environment = {"GT_ATEN": "on", "GT_BACKEND": "pytorch", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        env=os.environ | environment | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    number, calls = done.stdout.splitlines()
    return number, json.loads(calls), done.stderr


@pytest.fixture
def copied(aten_helper: Trial, tmp_path: pathlib.Path) -> pathlib.Path:  # noqa: F811
    """A cache folder of this test's own with the helper in it: the library's file."""
    folder = tmp_path / "aten"
    folder.mkdir()
    made = pathlib.Path(aten_helper.helper._name)
    for suffix in (".so", ".json"):
        (folder / made.name).with_suffix(suffix).write_bytes(made.with_suffix(suffix).read_bytes())
    return folder / made.name


def test_the_same_number_in_cpp_and_in_python(copied: pathlib.Path) -> None:
    cache = str(copied.parent.parent)
    aten, in_cpp, _ = run(GT_CACHE_DIR=cache)
    python, in_python, _ = run(GT_CACHE_DIR=cache, GT_ATEN="off")
    assert aten == python
    assert in_cpp[0] > 0
    assert in_python == [0]


def test_without_a_compiler_rows_run_in_python(tmp_path: pathlib.Path) -> None:
    expected, _, _ = run(GT_ATEN="off")
    number, calls, said = run(GT_CACHE_DIR=str(tmp_path), CXX="/nowhere/c++")
    assert (number, calls) == (expected, [0])
    assert "there is no compiler /nowhere/c++" in said


def test_a_failing_compiler_is_named_and_missed_by_nobody(tmp_path: pathlib.Path) -> None:
    toy = compiler(tmp_path, "#!/bin/sh\necho 'toy: error: no'\nexit 1\n")
    number, calls, said = run(GT_CACHE_DIR=str(tmp_path), CXX=str(toy))
    assert calls == [0]
    assert float(number) > 0
    assert "toy: error: no" in said


def test_a_corrupt_library_is_not_loaded(copied: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """One bit is another: it is compiled again, here by what makes something else."""
    data = bytearray(copied.read_bytes())
    data[len(data) // 2] ^= 1
    copied.write_bytes(data)
    assert build.library(copied.parent, copied.stem) is None
    toy = compiler(tmp_path)
    made = build.compile_into(copied.parent, copied.stem, [str(toy)])
    assert made.read_text() == "made\n"
    with pytest.raises(OSError, match=r"file too short|invalid ELF"):
        library.load(made)


def test_a_library_of_another_name_is_not_loaded(copied: pathlib.Path) -> None:
    """A key is a version of torch, of the compiler and of the source: the file says which."""
    assert build.library(copied.parent, copied.stem) == copied
    other = build.key("2.14.0 another", "toy 1")
    for suffix in (".so", ".json"):
        copied.with_suffix(suffix).rename(copied.with_name(other + suffix))
    assert build.library(copied.parent, other) is None


def test_a_library_of_another_torch_is_refused(
    aten_helper: Trial,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with pytest.raises(start.UnavailableError, match=r"compiled for torch .*, not 2\.99\.0"):
        start._load(pathlib.Path(aten_helper.helper._name))


def test_a_helper_that_computes_something_else_is_refused(
    aten_helper: Trial,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gt.worker.aten import table

    lines = dict(table.lines())
    lines["add"], lines["mul"] = lines["mul"], lines["add"]
    monkeypatch.setattr(table, "lines", lambda: lines)
    with pytest.raises(start.UnavailableError, match="the helper's add is not torch's"):
        start.ready()


def test_two_processes_compile_once(tmp_path: pathlib.Path) -> None:
    toy = compiler(tmp_path)
    command = [sys.executable, "-I", build.__file__, str(tmp_path / "cache"), "key", str(toy)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(3)]
    for process in processes:
        with process:  # closes its input only when it has ended
            assert process.wait() == 0
    assert (tmp_path / "calls").read_text() == "called\n"
    assert build.library(tmp_path / "cache", "key") is not None


def sleeper(folder: pathlib.Path) -> pathlib.Path:
    """A compiler with a child that takes a minute; both write their numbers down."""
    text = COMPILER.replace("sleep 0.2", 'sleep 60 & echo $$ $! > "$(dirname "$0")/numbers"; wait')
    return compiler(folder, text)


def numbers(folder: pathlib.Path) -> list[int]:
    """Process numbers of the running compiler."""
    eventually(lambda: (folder / "numbers").exists() and (folder / "numbers").read_text())
    return [int(word) for word in (folder / "numbers").read_text().split()]


def state(number: int) -> list[str]:
    """Fields of a process's state: its letter, its parent, and so on."""
    return pathlib.Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()


def parent(number: int) -> int:
    return int(state(number)[1])


def is_alive(number: int) -> bool:
    try:
        return state(number)[0] != "Z"
    except OSError:
        return False


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_a_compiler_ends_with_who_wanted_it(tmp_path: pathlib.Path) -> None:
    """A second one, which waits for the first, too; neither leaves a file."""
    command = [sys.executable, "-I", build.__file__, str(tmp_path / "cache"), "key"]
    command.append(str(sleeper(tmp_path)))
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2)]
    running = numbers(tmp_path)
    assert os.getpriority(os.PRIO_PROCESS, running[0]) == 19
    for process in processes:
        process.stdin.close()
    assert [process.wait() for process in processes] == [1, 1]
    assert not any(map(is_alive, running))
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["key.lock"]


@pytest.mark.parametrize("how", ["the program ends", "the worker is killed"])
def test_a_compiler_ends_with_the_worker(how: str, tmp_path: pathlib.Path) -> None:
    settings = {"GT_ATEN": "auto", "GT_BACKEND": "pytorch", "CUDA_VISIBLE_DEVICES": ""}
    settings |= {"GT_CACHE_DIR": str(tmp_path / "cache"), "CXX": str(sleeper(tmp_path))}
    program = "import sys, gt; gt.ones(2).sum().item(); sys.stdin.readline()"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | settings,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        running = numbers(tmp_path)
        if how == "the program ends":
            assert process.communicate("\n")[1] == ""
            assert process.returncode == 0
        else:
            os.kill(parent(parent(running[0])), signal.SIGKILL)
        eventually(lambda: not any(map(is_alive, running)))


def test_a_failure_is_kept_for_a_day(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs do not ask a compiler that failed, each in vain; `on` asks again."""
    toy = compiler(tmp_path, COMPILER.replace("sleep 0.2", "echo 'toy: error: no'; exit 1"))
    monkeypatch.setenv("CXX", str(toy))
    monkeypatch.setenv("GT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "SETTLE_SECONDS", 0.0)
    in_background = compiling.Request(in_background=True)
    for request in (in_background, in_background, compiling.Request()):
        with pytest.raises(start.UnavailableError, match="toy: error: no"):
            start.ready(request)
    versions, compiled = 3, 2
    assert len((tmp_path / "calls").read_text().split()) == versions + compiled
    (failed,) = (tmp_path / "aten").glob("*.failed")
    os.utime(failed, (0, 0))
    assert build.failure(failed.parent, failed.stem) is None


def test_what_is_not_wanted_any_more_is_not_handed_over(
    copied: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers: list[object] = []
    monkeypatch.setattr(start, "offer_aten", lambda *of: offers.append(of))
    monkeypatch.setenv("GT_CACHE_DIR", str(copied.parent.parent))
    request = compiling.Request()
    start._offer(start.Values(torch.device("cpu")), request, is_told=True)
    request.over.set()
    start._offer(start.Values(torch.device("cpu")), request, is_told=True)
    assert len(offers) == 1


def test_a_helper_that_came_with_the_package_needs_no_compiler(
    aten_helper: Trial,  # noqa: F811
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Made here by what copies the one of these tests; one that does not load is passed over."""
    made = aten_helper.helper._name
    toy = compiler(tmp_path, COMPILER.replace('echo made > "$2"', f'cp {made} "$2"'))
    monkeypatch.setenv("CXX", str(toy))
    path = start.prebuild(tmp_path / "prebuilt")
    monkeypatch.setattr(start, "PREBUILT", path.parent)
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert start.ready()._name == str(path)
    monkeypatch.setenv("CXX", str(compiler(tmp_path)))
    monkeypatch.setattr(start, "PREBUILT", tmp_path / "other" / "prebuilt")
    start.prebuild(start.PREBUILT)
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(start.UnavailableError, match="there is no compiler"):
        start.ready()


def test_what_decides_the_library_is_in_its_name() -> None:
    names = {build.key("2.15.0", "a"), build.key("2.15.1", "a"), build.key("2.15.0", "b")}
    assert len(names) == 3


def test_warnings_of_torch_go_where_those_of_python_go(aten_helper: Trial) -> None:  # noqa: F811
    helper = aten_helper.helper
    program = helper.gt_program_new()
    helper.gt_push_operand(program, 1, 0)
    assert helper.gt_call(program, b"aten::numpy_T", b"") == 1
    helper.gt_push_operand(program, 3, 0)
    helper.gt_results(program)
    torch.set_warn_always(True)  # it is told once a process
    try:
        with pytest.warns(UserWarning, match="is deprecated"):
            aten_helper._results(program, [aten_helper._argument(torch.ones(2, 2, 2))])
    finally:
        torch.set_warn_always(False)
    helper.gt_program_free(program)


def test_a_bad_word_for_kernels_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GT_ATEN", "fast")
    with pytest.raises(ValueError, match="GT_ATEN=fast: expected one of auto, on, off"):
        config.aten_rows()
    monkeypatch.delenv("GT_ATEN")
    assert config.aten_rows() == "auto"


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.delenv("GT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert config.cache_folder() == tmp_path / "gt"
    monkeypatch.setenv("GT_CACHE_DIR", str(tmp_path / "own"))
    assert config.cache_folder() == tmp_path / "own"


def test_every_function_of_the_loop_is_there(aten_helper: Trial) -> None:  # noqa: F811
    addresses = library.addresses(aten_helper.helper)
    assert all(addresses)
    assert len(set(addresses)) == len(library.LOOP)
    assert isinstance(aten_helper.helper, ctypes.PyDLL)
