"""Whole objects in a file of the user's own, by pickle; nothing from a socket comes here.

Modules and objects of a program's classes need code to be read again, which safetensors files do
not hold. Reading such a file runs code that it names: only `weights_only=False` asks for that.
"""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - files that the user asks for by name; messages never come here
from typing import IO

MAGIC = b"gt.pickle\n"  # before the pickle: PyTorch's older files are pickles of another form
_PROTOCOL = 4


def dumped(obj: object) -> bytes:
    """An object as bytes, with the classes it needs by name."""
    return MAGIC + pickle.dumps(obj, protocol=_PROTOCOL)


def read(file: IO[bytes]) -> object:
    """Read the object that an open file stands at."""
    file.seek(len(MAGIC), os.SEEK_CUR)
    return pickle.load(file)  # noqa: S301 - the user has asked for it with weights_only=False
