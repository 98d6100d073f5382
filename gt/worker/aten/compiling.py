"""Libraries compiled against the installed torch: the command, the cache folder, the process.

build.py runs the compiler in a process of its own.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import subprocess
import sys
import threading

import torch

from gt import config
from gt.worker.aten import build
from gt.worker.aten.build import Sources

# First version of torch that the libraries are compiled and tested against.
TORCH_MIN = (2, 11)
# Delay before compiling: a program that ends earlier has no use for a library.
SETTLE_SECONDS = 2.0
_POLL_SECONDS = 0.1


class UnavailableError(Exception):
    """There is no library; the message says why."""


@dataclasses.dataclass(frozen=True)
class Request:
    """Manner of waiting for a library."""

    in_background: bool = False
    # Set when it is not wanted any more.
    over: threading.Event = dataclasses.field(default_factory=threading.Event)


def key(compiler_version: str, sources: Sources) -> str:
    """Name of the library of these sources for the installed torch.

    Raises:
        UnavailableError: torch is too old.
    """
    version = tuple(int(word) for word in torch.__version__.split(".")[:2])
    if version < TORCH_MIN:
        raise UnavailableError(f"torch {torch.__version__} is older than {TORCH_MIN}")
    return build.key(f"{torch.__version__} {torch.version.git_version}", compiler_version, sources)


def kept(sources: Sources, folder_name: str) -> pathlib.Path | None:
    """The library of these sources in the user's cache folder; None if it is not compiled.

    Raises:
        UnavailableError: there can be none.
    """
    name = key(_version_of(compiler()), sources)
    return build.library(config.cache_folder() / folder_name, name)


def file(sources: Sources, folder_name: str, request: Request) -> pathlib.Path:
    """The library of these sources in the user's cache folder, compiled if need be.

    Raises:
        UnavailableError: there is none.
    """
    folder, name = config.cache_folder() / folder_name, key(_version_of(compiler()), sources)
    path = build.library(folder, name)
    if path is None:
        _build(folder, name, command(sources), request)
        path = build.library(folder, name)
    if path is None:
        raise UnavailableError(f"{folder}/{name}.so is not what was written")
    return path


def command(sources: Sources) -> list[str]:
    """Command that compiles these sources.

    Raises:
        UnavailableError: torch has no headers, or there is no compiler.
    """
    root = pathlib.Path(torch.__file__).parent
    if not (root / "include" / "ATen" / "core" / "ivalue.h").is_file():
        raise UnavailableError("torch is installed without its C++ headers")
    return [
        compiler(),
        *build.FLAGS,
        f"-I{root / 'include'}",
        f"-I{root / 'include' / 'torch' / 'csrc' / 'api' / 'include'}",
        f"-L{root / 'lib'}",
        *sources.flags,
        str(sources.main),
    ]


def compiler() -> str:
    """Path of the C++ compiler.

    Raises:
        UnavailableError: there is none.
    """
    path = shutil.which(config.cpp_compiler())
    if path is None:
        raise UnavailableError(f"there is no compiler {config.cpp_compiler()}")
    return path


def _version_of(path: str) -> str:
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout


def _build(folder: pathlib.Path, name: str, words: list[str], request: Request) -> None:
    if request.in_background:
        text = build.failure(folder, name)
        if text is not None:
            raise UnavailableError(text)
        if request.over.wait(SETTLE_SECONDS):
            raise UnavailableError("the process has ended")
    # A session of its own: its input tells it that this process is gone, in any case.
    with subprocess.Popen(
        [sys.executable, "-I", build.__file__, str(folder), name, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while process.poll() is None and not request.over.wait(_POLL_SECONDS):
            pass
        process.stdin.close()
        said = process.stdout.read()
    if process.returncode != 0:
        raise UnavailableError(said.strip() or "the compiler ended")
