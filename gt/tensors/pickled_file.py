"""Whole objects in a user's own file, by pickle; no data from a socket come here.

Modules and objects of a program's classes need code to be restored, which safetensors files do not
hold. Reading such a file runs the code that it names: `weights_only=False` allows that. Without it,
the file may name only what the program allows.
"""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - files that the user asks for by name; messages never come here
import types
from collections import OrderedDict
from collections.abc import Sequence
from typing import IO

from gt._core import Tensor, dtype
from gt.errors import InvalidUse

MAGIC = b"gt.pickle\n"  # before the pickle: PyTorch's older files are pickles of another form
_PROTOCOL = 4


def dumped(obj: object) -> bytes:
    """An object as bytes, with its classes by name."""
    return MAGIC + pickle.dumps(obj, protocol=_PROTOCOL)


def read(file: IO[bytes]) -> object:
    """Read the object at the position of an open file."""
    file.seek(len(MAGIC), os.SEEK_CUR)
    return pickle.load(file)  # noqa: S301 - the user has asked for it with weights_only=False


class _Allowed(pickle.Unpickler):
    """Allows only GT's tensors, the classes of `gt.nn`, and the globals that the program allows."""

    def __init__(self, file: IO[bytes], allowed: Sequence[object]) -> None:
        super().__init__(file)
        self.allowed = allowed

    def find_class(self, module: str, name: str) -> object:
        value = super().find_class(module, name)
        home = getattr(value, "__module__", None)
        is_of_layers = isinstance(value, type | types.FunctionType) and str(home).startswith(
            "gt.nn."
        )
        if is_of_layers or isinstance(value, dtype) or any(value is x for x in self._plain()):
            return value
        if any(value is x for x in self.allowed):
            return value
        raise InvalidUse(
            f"load: the file names {module}.{name}, which weights_only does not allow; where you "
            f"trust it: torch.serialization.add_safe_globals([{name}])"
        )

    @staticmethod
    def _plain() -> tuple[object, ...]:
        from gt import device
        from gt.tensors import reading, size

        return (Tensor, reading.rebuilt, device, size.Size, OrderedDict, set)


def read_allowed(file: IO[bytes], allowed: Sequence[object]) -> object:
    """Read the object if it names only allowed globals.

    Raises:
        InvalidUse: it names something else; none of its code has run.
    """
    file.seek(len(MAGIC), os.SEEK_CUR)
    return _Allowed(file, allowed).load()
