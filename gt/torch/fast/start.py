"""Prepares the fast path while a program runs its first operators in Python, and installs it.

After any failure (no compiler, no headers, another torch) the program goes on in Python.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from gt import _core
from gt.config import scopes
from gt.tensors.aten.call import DTYPES as DTYPE_NUMBERS
from gt.torch import backward_scopes, composites, passes, products
from gt.torch.elements import TORCH_DTYPES
from gt.torch.fast import offers
from gt.torch.tensor import MuxTensor
from gt.worker.aten import build, compiling
from gt.worker.aten.compiling import Request, UnavailableError

_POINTER, _TEXT, _INT = ctypes.py_object, ctypes.c_char_p, ctypes.c_int
# C signatures of the functions in fast.cpp: result, then arguments.
_FUNCTIONS: dict[str, tuple[type | None, list[type]]] = {
    "gt_torch_version": (_TEXT, []),
    "gt_front_install": (_INT, [*[_POINTER] * 6, ctypes.c_size_t, _POINTER, _POINTER]),
    "gt_front_operator": (_INT, [_TEXT, _TEXT, _INT, _POINTER]),
    "gt_front_recorded": (_INT, [_TEXT, _TEXT]),
    "gt_front_gradient": (_INT, [_TEXT, _TEXT, _POINTER]),
    "gt_front_switch": (None, [_INT]),
    "gt_front_calls": (ctypes.c_uint64, []),
}


class _State:
    """The library once it is installed, and the reason if there is none."""

    library: ctypes.PyDLL | None = None
    reason = "not compiled yet"


state = _State()
_installing = threading.Lock()  # held by a thread that installs the library, which is done once


def begin(mode: str) -> None:
    """Starts to prepare the fast path.

    Args:
        mode: `off` for never, `auto` in a thread while operators run in Python, `on` for at once.
    """
    if mode == "on":
        try:
            install(ready(Request()))
        except UnavailableError as error:
            state.reason = str(error)
            sys.stderr.write(f"gt.torch: operators are called in Python, not in C++: {error}\n")
    elif mode == "auto":
        request = Request(in_background=True)
        thread = threading.Thread(target=_prepare, args=(request,), name="gt-front", daemon=True)
        thread.start()
        atexit.register(_end, request, thread)
    else:
        state.reason = "GT_FRONT=off"


def _end(request: Request, thread: threading.Thread) -> None:
    """Ends a preparation in progress: a thread in torch must not outlive the interpreter."""
    request.over.set()
    thread.join()


def _prepare(request: Request) -> None:
    try:
        library = ready(request)
    except Exception as error:  # noqa: BLE001 - whatever it is, operators run in Python
        state.reason = str(error)
        return
    run = MuxTensor.run

    def first(
        operator: Any,  # noqa: ANN401 - PyTorch has no public type of an overload
        args: Sequence[object],
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Installs the fast path in the program's own thread, between two operators."""
        MuxTensor.run = run
        install(library)
        return run(operator, args, kwargs)

    if not request.over.is_set():
        MuxTensor.run = first


def ready(request: Request) -> ctypes.PyDLL:
    """The library, compiled if need be, and loaded.

    Raises:
        UnavailableError: there is none.
    """
    path = compiling.file(build.front(), "front", request)
    try:
        library = ctypes.PyDLL(str(path))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise UnavailableError(str(error)) from None
    return library


def install(library: ctypes.PyDLL) -> None:
    """Makes PyTorch call the library's kernels, for operators that were offered or will be."""
    with _installing:
        if state.library is None:
            _install(library)


def _install(library: ctypes.PyDLL) -> None:
    numbers = tuple(sorted(DTYPE_NUMBERS, key=DTYPE_NUMBERS.__getitem__))
    done = library.gt_front_install(
        MuxTensor,
        _core.Tensor,
        scopes.state.by_signal,
        passes.enter_thread,
        passes.wait,
        backward_scopes.look,
        _core.metadata_address(),
        tuple(TORCH_DTYPES[dtype] for dtype in numbers),
        numbers,
    )
    assert done == 0, numbers
    offers.take(functools.partial(_register, library))
    for name in composites.WHOLE:
        library.gt_front_recorded(f"aten::{name}".encode(), b"")
    for name in composites.PRODUCTS:
        library.gt_front_gradient(f"aten::{name}".encode(), b"", products.FUNCTIONS[name])
    state.library, state.reason = library, ""


def _register(library: ctypes.PyDLL, entry: offers.Offer) -> bool:
    """Makes the library run an operator, unless its schema has types that it does not know."""
    name, overload = entry.operator.encode(), entry.overload.encode()
    is_taken: int = library.gt_front_operator(name, overload, int(entry.use), entry.function)
    return is_taken == 1


def switch(*, is_on: bool) -> None:
    """Lets operators be called in C++ again, or leaves all of them to Python."""
    if state.library is not None:
        state.library.gt_front_switch(int(is_on))


def calls() -> int:
    """Number of operators that ran in C++ in this process."""
    return 0 if state.library is None else int(state.library.gt_front_calls())


def description() -> str:
    """Says if operators on `mux` are called in C++ or Python in this process, and why."""
    return "in C++" if state.library is not None else f"in Python: {state.reason}"
