"""Compiles the helper against the installed torch, once, into the user's cache folder.

`python build.py FOLDER KEY COMMAND...` is a process of its own: it goes on where the worker that
wanted it ends before, else programs of a few seconds would never have it. Nothing here imports
torch or gt.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

SOURCES = ("aten.cpp", "build.cpp", "run.cpp", "program.h")
HERE = pathlib.Path(__file__).resolve().parent
# A minute on a busy machine; a compiler that takes longer is stuck.
COMPILE_SECONDS_MAX = 600.0
# AT_PER_OPERATOR_HEADERS: ATen's headers by operator, a third of the time.
FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-DAT_PER_OPERATOR_HEADERS")
LIBRARIES = ("-ltorch_cpu", "-lc10")


def key(torch_version: str, compiler_version: str) -> str:
    """What names the helper: all that decides what is compiled."""
    digest = hashlib.sha256()
    for part in (torch_version, compiler_version, *FLAGS, *LIBRARIES, os.uname().machine):
        digest.update(part.encode() + b"\0")
    for name in SOURCES:
        digest.update((HERE / name).read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def library(folder: pathlib.Path, name: str) -> pathlib.Path | None:
    """The helper of this key, if it is there and is what was written."""
    path = folder / f"{name}.so"
    try:
        stated = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        data = path.read_bytes()
        is_ours = path.stat().st_uid == os.getuid() == folder.stat().st_uid
    except (OSError, ValueError):
        return None
    return path if is_ours and stated == _facts(name, data) else None


def _facts(name: str, data: bytes) -> dict[str, object]:
    return {"key": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def compile_into(folder: pathlib.Path, name: str, command: Sequence[str]) -> pathlib.Path:
    """Runs the compiler unless another process has done it meanwhile; the helper's file.

    Args:
        folder: where it is kept; made for this user alone.
        name: the key.
        command: the compiler's, to which the source and the output's name are added.

    Raises:
        OSError: the folder cannot be written to.
        RuntimeError: the compiler says that it cannot.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(folder / f"{name}.lock"):
        done = library(folder, name)
        if done is not None:
            return done
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = pathlib.Path(scratch, "helper.so")
            # The libraries come last: some linkers leave out what nothing before them needs.
            source = str(HERE / "aten.cpp")
            _run([*command, source, "-o", str(made), *LIBRARIES])
            facts = pathlib.Path(scratch, "helper.json")
            facts.write_text(json.dumps(_facts(name, made.read_bytes())), encoding="utf-8")
            made.chmod(0o700)
            # What is written last says what was written before it.
            made.replace(folder / f"{name}.so")
            facts.replace(folder / f"{name}.json")
    return folder / f"{name}.so"


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Two workers compile once. The lock goes with the process, however that ends."""
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: list[str]) -> None:
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMPILE_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{command[0]}: {error}") from None
    if result.returncode != 0:
        lines = [line for line in result.stdout.splitlines() if "error" in line] or ["no message"]
        raise RuntimeError(f"{command[0]} failed: {lines[0].strip()}")


def main(arguments: list[str]) -> int:
    """The process: 0, or 1 with the reason on stdout."""
    folder, name, *command = arguments
    try:
        compile_into(pathlib.Path(folder), name, command)
    except (OSError, RuntimeError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
