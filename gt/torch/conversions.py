"""Conversion of modules: a method by which PyTorch recognizes classes whose parameters stay tied.

`Module.to` swaps parameters in place, which keeps weights tied, for classes with a method that
makes a tensor of its parts. A tensor of `mux` has no parts, and a tracer must see a plain tensor of
the device; so the method exists only while `Module.to` runs.
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
    """Descriptor of `__tensor_unflatten__`, which exists only during a conversion."""

    def __get__(self, tensor: object, kind: type) -> Callable[..., torch.Tensor]:
        if state.conversions:
            return _refuse
        raise AttributeError("__tensor_unflatten__")


def _refuse(*_: object) -> torch.Tensor:
    raise NotImplementedError("a tensor of the device mux has no parts")
