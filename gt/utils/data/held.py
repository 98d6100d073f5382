"""Tensors that a dataset holds, for workers: read before these are forked.

A session belongs to its process, so a worker cannot use the parent's. A worker that only indexes
arrays needs no session. One that computes with such a tensor, or any other, opens its own session
and uploads all of them.
"""

from __future__ import annotations

import functools
import gc
import sys
import sysconfig
import types
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gt import _core
from gt._core import Tensor

Array = npt.NDArray[np.generic]

# Types whose values refer to no tensor, or to all tensors of a program.
_CLOSED = {str, bytes, bool, int, float, complex, type(None), types.ModuleType, types.CodeType}
_PLAIN = {list, tuple, dict, set}


@dataclass(frozen=True)
class Held:
    """The elements of a tensor; where numpy lacks its dtype, their bits."""

    tensor: Tensor
    array: Array
    dtype: _core.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> Held:
        """Reads the tensor."""
        kind = "uint16" if tensor.dtype == _core.bfloat16 else tensor.dtype.name
        array = _core.read_bytes(tensor).view(kind).reshape(tuple(tensor.shape))
        return cls(tensor, array, tensor.dtype)

    def bring(self) -> None:
        """Uploads the tensor's value in the session of this process."""
        self.tensor.data = made(self.array, self.dtype)


def made(array: Array, dtype: _core.dtype) -> Tensor:
    """The tensor of such an array."""
    return _core.from_bytes(np.ascontiguousarray(array), array.shape, dtype)


def tensors(roots: Iterable[object]) -> list[Tensor]:
    """Tensors reachable from the roots.

    References are attributes, container items, closures, and the module names that functions of the
    program use. Library code is skipped: it refers to no tensor of the program.
    """
    result: list[Tensor] = []
    seen: dict[int, object] = {}  # kept alive, so that no other object gets the same id
    level = list(roots)
    while level:
        fresh = {id(one): one for one in level if type(one) not in _CLOSED}
        for key in fresh.keys() & seen.keys():
            del fresh[key]
        seen |= fresh
        result += [one for one in fresh.values() if isinstance(one, Tensor)]
        plain = [one for one in fresh.values() if type(one) in _PLAIN]
        level = gc.get_referents(*plain)  # all at once: a dataset may list a million files
        for one in fresh.values():
            if type(one) not in _PLAIN:
                level.extend(_next(one))
    return result


def _next(one: object) -> Iterable[object]:
    """The objects that an object refers to."""
    if isinstance(one, types.FunctionType):
        named = _named(one) if _is_of_program(one.__module__) else []
        return [*named, one.__closure__, one.__defaults__, one.__kwdefaults__, one.__dict__]
    if isinstance(one, type):
        return [*vars(one).values(), *one.__mro__[1:]] if _is_of_program(one.__module__) else []
    if type(one) is np.ndarray and not one.dtype.hasobject:
        return []
    return gc.get_referents(one)


def _named(function: types.FunctionType) -> list[object]:
    """The objects that a function's code names: globals, and attributes of the
    program's modules.
    """
    names: set[str] = set()
    nested = [function.__code__]
    while nested:
        code = nested.pop()
        names.update(code.co_names)
        nested.extend(part for part in code.co_consts if isinstance(part, types.CodeType))
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    for one in list(values):
        if isinstance(one, types.ModuleType) and _is_of_program(one.__name__):
            values += [vars(one)[name] for name in names if name in vars(one)]
    return values


@functools.cache
def _is_of_program(module: str | None) -> bool:
    """True if a module is part of the program: neither GT nor installed."""
    if module is None or module.partition(".")[0] == "gt":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module == "__main__"
    installed = sysconfig.get_paths()
    places = (
        installed["stdlib"],
        installed["platstdlib"],
        installed["purelib"],
        installed["platlib"],
    )
    return not file.startswith(places)
