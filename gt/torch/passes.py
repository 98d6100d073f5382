"""PyTorch's backward passes over tensors of `mux`: their threads and scopes, and their errors.

A pass runs in the thread that starts it, so that it has that thread's call site, and a node has the
scope of its operator (backward_scopes.py).

A Python error that leaves an operator or a hook in a pass would end the process: before PyTorch
handles it, the device's stream guard calls Python again, from C++ that may not fail. So an
operator's error is kept here, and the operator returns a value that C++ refuses without Python; a
hook's error is kept by the guard's function (`gt._core.ErrorKeeper`). The error is raised to the
pass's caller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import graph

from gt import _core
from gt.torch import backward_scopes

# Sentinel that is no operator's result.
REFUSED = object()

_waiting: dict[int, BaseException] = {}


class _Thread(threading.local):
    """State of one thread; a later thread may have the number of one that has ended."""

    has_entered = False


this_thread = _Thread()


def is_running() -> bool:
    """True if this thread is in a backward pass."""
    return torch._C._current_graph_task_id() != -1  # noqa: SLF001 - nothing public tells


def wait(error: BaseException) -> object:
    """Keeps the first error of a pass for its caller; returns a value that ends the pass."""
    _waiting.setdefault(threading.get_ident(), error)
    return REFUSED


def enter_thread() -> None:
    """Makes backward passes of this thread, which has called an operator, run in the
    thread itself.
    """
    this_thread.has_entered = True
    torch.autograd.set_multithreading_enabled(False)


def install() -> None:
    """Wraps PyTorch's function that runs passes, to raise an error that was kept."""
    run = _raising(graph._engine_run_backward)  # noqa: SLF001 - its only place
    graph._engine_run_backward = run  # noqa: SLF001
    torch.autograd._engine_run_backward = run  # type: ignore[attr-defined] # noqa: SLF001


def _raising(run: Callable[..., Any]) -> Callable[..., Any]:
    def run_backward(*args: object, **kwargs: object) -> object:
        try:
            with backward_scopes.of_pass():
                return run(*args, **kwargs)
        except BaseException:
            kept_error = _core.ErrorKeeper.take()
            error = _waiting.pop(threading.get_ident(), None) or kept_error
            if error is None:
                raise
        raise error

    return run_backward
