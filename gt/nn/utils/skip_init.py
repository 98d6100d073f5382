"""Modules whose parameters a program sets itself."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from gt.nn.module import Module

T = TypeVar("T", bound=Module)

__all__ = ["skip_init"]


def skip_init(module_cls: type[T], *args: Any, **kwargs: Any) -> T:  # noqa: ANN401 - the class's
    """Make a module whose parameters' values are unspecified.

    There is no meta device here, and initializing takes no wait: the module is initialized as
    usual, which PyTorch leaves open.

    Raises:
        RuntimeError: it is not a module, or its class takes no `device`.
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")  # noqa: TRY004 - PyTorch's
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    return module_cls(*args, **kwargs)
