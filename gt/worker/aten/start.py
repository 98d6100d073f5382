"""Prepares the helper while the worker runs its first instructions, and tries it before use.

After any failure (no compiler, no headers, a changed file, a helper with wrong results) the worker
goes on with its Python kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import pathlib
import sys
import threading
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch

from gt._core import offer_aten
from gt.worker import memory
from gt.worker.aten import build, compiling, library, trial
from gt.worker.aten.binding import Binder
from gt.worker.aten.compiling import Request, UnavailableError
from gt.worker.pytorch import own_kernels
from gt.worker.pytorch import threads as torch_threads

# Folder of helpers that came with the package; their keys name no compiler.
PREBUILT = pathlib.Path(build.__file__).with_name("prebuilt")
# Objects that the helper calls, kept for the life of the process like the library itself.
_KEPT: list[object] = []


class Values(NamedTuple):
    """The device of a worker's values, and the rows that Python runs."""

    device: torch.device
    in_python: frozenset[str] = frozenset()
    """Rows, and operators of generic rows, whose kernels in Python are not PyTorch's: GT's own
    kernels of a GPU, which the helper does not know."""


class Preparation:
    """Prepares the helper while the worker runs its first instructions.

    Args:
        values: device of the worker's values, and rows that are left to Python.
        is_told: True reports why there is no helper.
    """

    def __init__(self, values: Values, *, is_told: bool) -> None:
        self._request = Request(in_background=True)
        self._thread = threading.Thread(
            target=_offer,
            args=(values, self._request),
            kwargs={"is_told": is_told},
            name="gt-aten",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Ends a preparation in progress: a thread in torch must not outlive the interpreter."""
        self._request.over.set()
        self._thread.join()


def begin(mode: str, values: Values, *, is_told: bool) -> Callable[[], None]:
    """Starts to prepare the helper.

    Args:
        mode: `off` for never, `auto` in a thread while Python's kernels run, `on` for at once.
        values: device of the worker's values, and rows that are left to Python.
        is_told: True makes `auto` report why there is no helper; `on` always does.

    Returns: A function that ends it, to be called before the interpreter ends.
    """
    if mode == "on":
        _offer(values, Request(), is_told=True)
    elif mode == "auto":
        return Preparation(values, is_told=is_told).close
    return lambda: None


def _offer(values: Values, request: Request, *, is_told: bool) -> None:
    """Hands the helper to the loop, which installs it between two instructions."""
    try:
        helper = ready(request)
    except Exception as error:  # noqa: BLE001  whatever it is, Python's kernels go on
        if is_told and not request.over.is_set():
            sys.stderr.write(f"gt.worker: rows run in Python, not in C++: {error}\n")
        return
    if not request.over.is_set():
        if values.device.type == "cpu":
            helper.gt_memory_install(memory.kept_bytes())
            memory.on_release(helper.gt_memory_release)
        offer_aten(library.addresses(helper), Binder(helper, *values).bind)


def ready(request: Request | None = None) -> ctypes.PyDLL:
    """The helper, compiled if need be, loaded and tried.

    Raises:
        UnavailableError: there is none.
    """
    with contextlib.suppress(UnavailableError):  # built for an older system, say: compile here
        path = build.library(
            PREBUILT, compiling.key(PREBUILT.name, build.HELPER), is_installed=True
        )
        if path is not None:
            return _tried(path)
    return _tried(compiling.file(build.HELPER, "aten", request or Request()))


def prebuild(folder: pathlib.Path) -> pathlib.Path:
    """Compiles the helper for users of the torch that is installed here; returns the helper's file.

    Args:
        folder: the future `PREBUILT` of a package.

    Raises:
        OSError: the folder cannot be written to.
        RuntimeError: the compiler failed.
        UnavailableError: torch is too old, or has no headers, or there is no compiler.
    """
    return build.compile_into(
        folder, compiling.key(PREBUILT.name, build.HELPER), compiling.command(build.HELPER)
    )


def _tried(path: pathlib.Path) -> ctypes.PyDLL:
    helper = _load(path)
    text = trial.difference(trial.Trial(helper, Binder(helper, torch.device("cpu"))))
    if text:
        raise UnavailableError(text)
    show = library.SHOW(_warn)
    _KEPT.append(show)
    helper.gt_set_warnings(show)
    _give_kernels(helper)
    return helper


def _give_kernels(helper: ctypes.PyDLL) -> None:
    """Gives the helper the look-ups of GT's own kernels."""
    kernels = own_kernels.module()
    if kernels is None:
        return
    loaded = ctypes.PyDLL(kernels.__file__)
    _KEPT.append(loaded)
    most = own_kernels.threads_most()
    setter = torch_threads.setter()
    if most > 1 and setter is not None:
        helper.gt_set_threads(_address(loaded, "gt_run_tasks"), most, setter.address)
    finders = [_address(loaded, name) for name in ("gt_loop_call", "gt_kernel_entry")]
    helper.gt_set_kernels(*finders, most, own_kernels.takes_all())


def _address(loaded: ctypes.PyDLL, name: str) -> ctypes.c_void_p:
    return ctypes.cast(getattr(loaded, name), ctypes.c_void_p)


def _warn(text: bytes) -> None:
    warnings.warn(text.decode(errors="replace"), UserWarning, stacklevel=2)


def _load(path: pathlib.Path) -> ctypes.PyDLL:
    try:
        helper = library.load(path)
    except OSError as error:
        raise UnavailableError(str(error)) from None
    compiled = helper.gt_torch_version().decode()
    if torch.__version__.split("+")[0] != compiled.split("+")[0]:
        raise UnavailableError(f"compiled for torch {compiled}, not {torch.__version__}")
    return helper
