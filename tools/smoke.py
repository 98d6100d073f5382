"""Install the wheel of `just wheel` under each installed Python from 3.10 on, and use it.

Each Python gets a fresh environment with numpy, without PyTorch, and without Rust on the path;
tests/tools/installed.py runs there in an empty folder, and once more with PyTorch if the Python
that runs this program has it. Missing versions are reported; the running one is always present.
"""

import argparse
import concurrent.futures
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "tests/tools/installed.py"
RUNNING = "{}.{}".format(*sys.version_info)
CAN_MAKE_ENVIRONMENTS = "import ensurepip, sys, venv; print('{}.{}'.format(*sys.version_info))"
SECONDS = 240


def versions() -> list[str]:
    """Versions that pyproject.toml lists."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r"Programming Language :: Python :: (3\.\d+)\"", text)


def candidates(version: str) -> Iterator[str]:
    """Possible paths of an interpreter of that version: those on the path, then pyenv's."""
    if version == RUNNING:
        yield sys.executable
    for folder in os.get_exec_path():
        yield f"{folder}/python{version}"
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}")))


def find(version: str) -> str | None:
    """The first candidate that runs and can create environments (pyenv's shims may not)."""
    for path in candidates(version):
        if not os.access(path, os.X_OK):
            continue
        done = subprocess.run(
            [path, "-c", CAN_MAKE_ENVIRONMENTS], check=False, capture_output=True, text=True
        )
        if done.stdout.strip() == version:
            return path
    return None


def without_rust() -> dict[str, str]:
    """This process's environment without Rust on the path and without settings for Python or GT."""
    kept = [
        folder
        for folder in os.get_exec_path()
        if not any((pathlib.Path(folder) / name).exists() for name in ("cargo", "rustc"))
    ]
    mine = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GT_", "PYTHON", "CARGO", "RUST", "VIRTUAL_ENV"))
    }
    return mine | {"PATH": os.pathsep.join(kept), "CUDA_VISIBLE_DEVICES": ""}


class Failed(Exception):
    """A command failed."""


def run(command: list[str], folder: pathlib.Path) -> str:
    """Output of a command. Raises Failed with its error output where it fails."""
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env=without_rust(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if done.returncode:
        raise Failed(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout.strip()


def smoke(python: str, wheel: pathlib.Path) -> str:
    """Install and use the wheel under one interpreter; returns the program's output."""
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="gt-smoke-"))
    try:
        environment, empty = scratch / "environment", scratch / "empty"
        empty.mkdir()
        run([python, "-m", "venv", str(environment)], empty)
        own = str(environment / "bin/python")
        pip = [own, "-m", "pip"]
        run([*pip, "install", "--quiet", "--only-binary", ":all:", str(wheel)], empty)
        run([*pip, "check"], empty)
        said = [run([own, str(PROGRAM), "native"], empty)]
        if python == sys.executable and (torch := importlib.util.find_spec("torch")):
            # Appended after the environment's own packages, so that GT and numpy stay those of the
            # wheel.
            assert torch.origin is not None, torch
            others = pathlib.Path(torch.origin).resolve().parent.parent
            (site,) = environment.glob("lib/python*/site-packages")
            (site / "others.pth").write_text(f"{others}\n", encoding="utf-8")
            said.append(run([own, str(PROGRAM), "torch"], empty))
        return "\n".join(said)
    finally:
        shutil.rmtree(scratch)


def main() -> None:
    """Exit code 0: the wheel works under all installed versions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=pathlib.Path, nargs="?", help="default: that in target/dist")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    wheels = [options.wheel] if options.wheel else list((ROOT / "target/dist").glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"target/dist holds {len(wheels)} wheels: `just wheel` puts one there")
    here = {version: find(version) for version in versions()}
    absent = [version for version, python in here.items() if python is None]
    if absent:
        print(f"NOT TESTED, not on this machine: Python {', '.join(absent)}")
    found = [python for python in here.values() if python is not None]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(smoke, python, wheels[0].resolve()) for python in found]
    for one in runs:
        print(one.exception() or one.result())
    if any(one.exception() for one in runs):
        sys.exit(1)


if __name__ == "__main__":
    main()
