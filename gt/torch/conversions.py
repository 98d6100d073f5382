"""Modules while they are converted: the method by which PyTorch knows classes to keep tied.

`Module.to` exchanges parameters in place, which keeps weights tied, for classes that say how to
make a tensor of its parts. One of `mux` has no parts, and a tracer shall see a plain tensor of the
device; so the method is there only while `Module.to` runs.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch


class _State(threading.local):
    """Number of nested module conversions that this thread is in."""

    conversions = 0


state = _State()


def counted(apply: Callable[..., Any]) -> Callable[..., Any]:
    """`Module._apply`, during which tensors of the device have the method."""

    @functools.wraps(apply)
    def converted(*args: object, **kwargs: object) -> object:
        state.conversions += 1
        try:
            return apply(*args, **kwargs)
        finally:
            state.conversions -= 1

    return converted


class Remake:
    """`__tensor_unflatten__`, while there is a use for it."""

    def __get__(self, tensor: object, kind: type) -> Callable[..., torch.Tensor]:
        if state.conversions:
            return _refuse
        raise AttributeError("__tensor_unflatten__")


def _refuse(*_: object) -> torch.Tensor:
    raise NotImplementedError("a tensor of the device mux has no parts")
