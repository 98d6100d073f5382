"""Compiles a library against the installed torch, once, into the user's cache folder: the helper
of workers, or the fast path of the torch front end.

`python build.py FOLDER KEY COMMAND...` is a process of its own, of lowest priority. It ends, and
its compiler with it, when its standard input does: that is a pipe from the worker, so nothing stays
behind however a worker ends. Nothing here imports torch or gt.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent


class Sources(NamedTuple):
    """The C++ files of one library.

    Args:
        main: the file that is compiled; it includes the others.
        others: names of the other files, in the same folder.
        flags: flags of the compiler beside FLAGS.
    """

    main: pathlib.Path
    others: tuple[str, ...]
    flags: tuple[str, ...] = ()


HELPER = Sources(
    HERE / "aten.cpp",
    (
        *("arguments.cpp", "batch.cpp", "build.cpp", "choices.cpp", "groups.cpp", "host.cpp"),
        *("joined.cpp", "kernels.cpp", "memory.cpp", "objects.cpp", "run.cpp", "small.cpp"),
        *("frame.h", "kernel_calls.h", "kernel_table.h", "kernels.h", "loop_operators.h"),
        *("loops.h", "program.h"),
    ),
)
# Compiling takes a minute on a busy machine; a compiler that exceeds this limit is stuck.
COMPILE_SECONDS_MAX = 600.0
# A compiler that failed is not run again for a day: every program would wait for it in vain.
FAILURE_SECONDS = 86400.0
_POLL_SECONDS = 0.1
_NICE_MAX = 19
# AT_PER_OPERATOR_HEADERS includes ATen's headers by operator, which takes a third of the time.
FLAGS = ("-std=c++20", "-O3", "-fPIC", "-shared", "-DAT_PER_OPERATOR_HEADERS")
# Before torch 2.14 Python's tensors are made by the library of its Python module.
LIBRARIES = ("-ltorch_cpu", "-lc10", "-Wl,--as-needed", "-ltorch_python")


def front() -> Sources:
    """The fast path of the torch front end, which needs Python's headers and is for one Python."""
    include = sysconfig.get_paths()["include"]
    return Sources(
        HERE.parent.parent / "torch" / "fast" / "fast.cpp",
        ("guard.cpp", "objects.cpp", "objects.h", "operators.cpp"),
        ("-O2", f"-I{include}", f"-DGT_PYTHON={sys.hexversion}"),
    )


def key(torch_version: str, compiler_version: str, sources: Sources = HELPER) -> str:
    """Name of a library: a digest of everything that decides on its compilation."""
    digest = hashlib.sha256()
    flags = (*FLAGS, *sources.flags, *LIBRARIES)
    for part in (torch_version, compiler_version, *flags, os.uname().machine):
        digest.update(part.encode() + b"\0")
    for name in (sources.main.name, *sources.others):
        digest.update((sources.main.parent / name).read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def library(folder: pathlib.Path, name: str, *, is_installed: bool = False) -> pathlib.Path | None:
    """The library of this key, if it exists and is unchanged since it was written.

    Args:
        folder: the folder to look in.
        name: the key.
        is_installed: True for a library that came with the package, whose owner need not be the
            user.
    """
    path = folder / f"{name}.so"
    try:
        stated = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        data = path.read_bytes()
        is_ours = path.stat().st_uid == os.getuid() == folder.stat().st_uid
    except (OSError, ValueError):
        return None
    return path if (is_ours or is_installed) and stated == _facts(name, data) else None


def _facts(name: str, data: bytes) -> dict[str, object]:
    return {"key": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


class UnwantedError(Exception):
    """The process that asked for a library is gone."""


def failure(folder: pathlib.Path, name: str) -> str | None:
    """The compiler's message, if it failed within the last day."""
    path = folder / f"{name}.failed"
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime < FAILURE_SECONDS:
            return path.read_text(encoding="utf-8")
    return None


def compile_into(
    folder: pathlib.Path,
    name: str,
    command: Sequence[str],
    is_wanted: Callable[[], bool] = lambda: True,
) -> pathlib.Path:
    """Runs the compiler unless another process has done it meanwhile; returns the library's file.

    Args:
        folder: its folder; made for this user alone.
        name: the key.
        command: the compiler's command line with its source, to which the output is added.
        is_wanted: a function called ten times a second; False ends the compiler.

    Raises:
        OSError: the folder cannot be written to.
        RuntimeError: the compiler failed.
        UnwantedError: `is_wanted` returned False.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(folder / f"{name}.lock", is_wanted):
        done = library(folder, name)
        if done is not None:
            return done
        with _scratch(folder / f"{name}.tmp") as scratch:
            output = scratch / "helper.so"
            # The libraries come last: some linkers drop those that nothing before them needs.
            try:
                _run([*command, "-o", str(output), *LIBRARIES], scratch, is_wanted)
            except RuntimeError as error:
                (folder / f"{name}.failed").write_text(str(error), encoding="utf-8")
                raise
            facts = scratch / "helper.json"
            facts.write_text(json.dumps(_facts(name, output.read_bytes())), encoding="utf-8")
            output.chmod(0o700)
            # The last file written shows that the others are complete.
            output.replace(folder / f"{name}.so")
            facts.replace(folder / f"{name}.json")
    (folder / f"{name}.failed").unlink(missing_ok=True)
    return folder / f"{name}.so"


@contextlib.contextmanager
def _locked(path: pathlib.Path, is_wanted: Callable[[], bool]) -> Iterator[None]:
    """Locks a file, so that two workers compile once. The lock ends with the process,
    in any case.
    """
    with path.open("w", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not is_wanted():
                    raise UnwantedError from None
                time.sleep(_POLL_SECONDS)
        yield


@contextlib.contextmanager
def _scratch(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """An empty folder, under the lock; a folder left by a killed process is emptied."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _run(command: list[str], scratch: pathlib.Path, is_wanted: Callable[[], bool]) -> None:
    said = scratch / "said"
    until = time.monotonic() + COMPILE_SECONDS_MAX
    with said.open("wb") as output:
        # This process has no gt.config. TMPDIR makes the compiler leave no files elsewhere.
        environment = os.environ | {"TMPDIR": str(scratch), "LC_ALL": "C"}  # noqa: TID251
        try:
            # A process group of its own, which is ended as a whole: a compiler has children.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise RuntimeError(f"{command[0]}: {error}") from None
    try:
        while process.poll() is None:
            if not is_wanted():
                raise UnwantedError
            if time.monotonic() > until:
                raise RuntimeError(f"{command[0]}: not done in {COMPILE_SECONDS_MAX:.0f} s")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode != 0:
        lines = said.read_text(encoding="utf-8", errors="replace").splitlines()
        lines = [line for line in lines if "error" in line] or ["no message"]
        raise RuntimeError(f"{command[0]} failed: {lines[0].strip()}")


def _is_input_open() -> bool:
    """True if the process that started this one lives: it holds the other end of a pipe."""
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return not readable


def _yield_to_others() -> None:
    """Lowers this process's priority for the processor and memory below all others."""
    os.nice(_NICE_MAX)
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def main(arguments: list[str]) -> int:
    """Entry point of the process: returns 0, or 1 with the reason on stdout."""
    folder, name, *command = arguments
    _yield_to_others()
    try:
        compile_into(pathlib.Path(folder), name, command, _is_input_open)
    except UnwantedError:
        return 1
    except (OSError, RuntimeError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
