"""Gets the helper ready beside the worker's first instructions, and hands it over when it is right.

Whatever goes wrong here (no compiler, no headers, a file that is not what was written, a helper
that computes something else) leaves the worker with its Python kernels.
"""

from __future__ import annotations

import ctypes
import pathlib
import shutil
import subprocess
import sys
import threading
import warnings

import torch

from gt import config
from gt._core import offer_native
from gt.worker.native import build, library, trial
from gt.worker.native.binding import Binder

# Since then a handle can be had of a Python tensor, and the other way, by functions that stay.
TORCH_MIN = (2, 14)


class UnavailableError(Exception):
    """There is no helper, and why."""


# What the helper calls, for the life of the process like the library itself.
_KEPT: list[object] = []


def begin(mode: str, device: torch.device) -> None:
    """Starts to get the helper ready.

    Args:
        mode: `off`: never. `auto`: in a thread, while Python's kernels run. `on`: now.
        device: of the worker's values; others than the CPU stay with Python.
    """
    if mode == "off" or (mode == "auto" and device.type != "cpu"):
        return
    if mode == "on":
        _offer(device, is_told=True)
    else:
        told = config.flag("GT_VERBOSE")
        threading.Thread(
            target=_offer, args=(device,), kwargs={"is_told": told}, daemon=True
        ).start()


def _offer(device: torch.device, *, is_told: bool) -> None:
    """Hands the helper to the loop, which takes it between two instructions."""
    try:
        helper = ready()
    except UnavailableError as error:
        if is_told:
            sys.stderr.write(f"gt.worker: rows run in Python, not in C++: {error}\n")
        return
    offer_native(library.addresses(helper), Binder(helper, device).bind)


def ready() -> ctypes.PyDLL:
    """The helper, compiled if need be, loaded and tried.

    Raises:
        UnavailableError: there is none.
    """
    helper = _load(_file())
    text = trial.difference(trial.Trial(helper, Binder(helper, torch.device("cpu"))))
    if text:
        raise UnavailableError(text)
    show = library.SHOW(_warn)
    _KEPT.append(show)
    helper.gt_set_warnings(show)
    return helper


def _warn(text: bytes) -> None:
    warnings.warn(text.decode(errors="replace"), UserWarning, stacklevel=2)


def _file() -> pathlib.Path:
    version = tuple(int(word) for word in torch.__version__.split(".")[:2])
    if version < TORCH_MIN:
        raise UnavailableError(f"torch {torch.__version__} is older than {TORCH_MIN}")
    compiler = shutil.which(config.cpp_compiler())
    if compiler is None:
        raise UnavailableError(f"there is no compiler {config.cpp_compiler()}")
    folder = config.cache_folder() / "aten"
    name = build.key(f"{torch.__version__} {torch.version.git_version}", _version_of(compiler))
    found = build.library(folder, name)
    if found is None:
        _build(folder, name, compiler)
        found = build.library(folder, name)
    if found is None:
        raise UnavailableError(f"{folder}/{name}.so is not what was written")
    return found


def _version_of(compiler: str) -> str:
    command = [compiler, "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _build(folder: pathlib.Path, name: str, compiler: str) -> None:
    root = pathlib.Path(torch.__file__).parent
    if not (root / "include" / "ATen" / "core" / "ivalue.h").is_file():
        raise UnavailableError("torch is installed without its C++ headers")
    command = [
        compiler,
        *build.FLAGS,
        f"-I{root / 'include'}",
        f"-I{root / 'include' / 'torch' / 'csrc' / 'api' / 'include'}",
        f"-L{root / 'lib'}",
    ]
    # A session of its own: it ends when it has compiled, also where this worker is gone by then.
    result = subprocess.run(
        [sys.executable, "-I", build.__file__, str(folder), name, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        check=False,
    )
    if result.returncode != 0:
        raise UnavailableError(result.stdout.strip() or "the compiler ended")


def _load(path: pathlib.Path) -> ctypes.PyDLL:
    try:
        helper = library.load(path)
    except OSError as error:
        raise UnavailableError(str(error)) from None
    compiled = helper.gt_torch_version().decode()
    if torch.__version__.split("+")[0] != compiled.split("+")[0]:
        raise UnavailableError(f"compiled for torch {compiled}, not {torch.__version__}")
    return helper
