"""A stand-in for PyTorch's compiler while PyTorch's kernels without values infer a call's results.

Some of these kernels are written in Python and marked as not compiled: the first call of one
imports the whole compiler (`torch._compile`), which takes three quarters of the time of a program's
first operator beyond the table. No values and no gradients are computed here.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

NAME = "torch._dynamo"
F = TypeVar("F", bound=Callable[..., object])


class LightDynamo(types.ModuleType):
    """Marks nothing; any other attribute comes from the compiler itself."""

    @staticmethod
    def disable(function: F, recursive: bool = True, *, wrapping: bool = True) -> F:
        """Returns `function` unchanged: nothing is compiled."""
        del recursive, wrapping
        return function

    def __getattr__(self, name: str) -> object:
        _remove()
        return getattr(importlib.import_module(NAME), name)


@contextlib.contextmanager
def in_place_of_dynamo() -> Iterator[None]:
    """Keeps the compiler from being imported by functions that are only marked."""
    if NAME in sys.modules:
        yield
        return
    sys.modules[NAME] = LightDynamo(NAME)
    try:
        yield
    finally:
        _remove()


def _remove() -> None:
    if isinstance(sys.modules.get(NAME), LightDynamo):
        del sys.modules[NAME]
        vars(torch).pop("_dynamo", None)
