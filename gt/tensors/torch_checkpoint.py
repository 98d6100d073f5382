"""Checkpoints of `torch.save`, read without PyTorch: tensors, and plain values beside them.

A file is a zip archive of a pickle and of memory, each part of which several tensors may share. The
pickle names functions that make tensors; nothing else that it names runs, except for globals that
the program allows by `add_safe_globals`, or with `weights_only=False`.
"""

from __future__ import annotations

import codecs
import pickle  # noqa: TID251 - files that the user asks for by name; messages never come here
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple

import gt
from gt import _core
from gt._core import Tensor
from gt.errors import InvalidUse, NotSupported
from gt.tensors.safetensors_file import FileFormatError

# Types of memory by which a checkpoint names dtypes.
STORAGES: Mapping[str, gt.dtype] = {
    "BFloat16Storage": gt.bfloat16,
    "BoolStorage": gt.bool,
    "ByteStorage": gt.uint8,
    "CharStorage": gt.int8,
    "ComplexDoubleStorage": gt.complex128,
    "ComplexFloatStorage": gt.complex64,
    "DoubleStorage": gt.float64,
    "FloatStorage": gt.float32,
    "HalfStorage": gt.float16,
    "IntStorage": gt.int32,
    "LongStorage": gt.int64,
    "ShortStorage": gt.int16,
}
# PyTorch's pickles have names from Python 2.
PLAIN: Mapping[str, Mapping[str, Any]] = {
    "__builtin__": {"set": set, "bytearray": bytearray, "complex": complex},
    "_codecs": {"encode": codecs.encode},
    "collections": {"OrderedDict": OrderedDict, "Counter": Counter},
}


def _rebuilt_parameter(data: Tensor, requires_grad: bool, *_: object) -> Tensor:
    return gt.nn.Parameter(data, requires_grad)


def _rebuilt_view(
    memory: Tensor, offset: int, size: Sequence[int], stride: Sequence[int], *rest: object
) -> Tensor:
    """A tensor on a part of memory, which other tensors may share."""
    view = memory.as_strided(tuple(size), tuple(stride), offset)
    return view.requires_grad_() if rest and rest[0] is True else view


TENSORS: Mapping[str, Callable[..., object]] = {
    "_rebuild_tensor": _rebuilt_view,
    "_rebuild_tensor_v2": _rebuilt_view,
    "_rebuild_parameter": _rebuilt_parameter,
}


class Reading(NamedTuple):
    """Settings for reading a file: its name for errors, the globals that its pickle may name."""

    name: object
    remedy: str  # advice for a file that only PyTorch can read
    allowed: Sequence[object]
    weights_only: bool  # False allows everything except PyTorch's own classes


def read(file: IO[bytes], reading: Reading) -> object:
    """The contents of a checkpoint, with GT's tensors; `file` is open at its beginning.

    Raises:
        FileFormatError: The file is damaged.
        InvalidUse: The pickle names something that is not allowed; none of its code has run.
        NotSupported: It holds more of PyTorch than tensors, or is older than PyTorch 1.6.
    """
    name = reading.name
    if not zipfile.is_zipfile(file):
        raise NotSupported(
            f"load: {name} is a checkpoint in the form that PyTorch had before 1.6. "
            + reading.remedy
        )
    try:
        with zipfile.ZipFile(file) as archive:
            return _Reader(archive, reading).load()
    except (zipfile.BadZipFile, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise FileFormatError(f"{name} is a damaged checkpoint of PyTorch's: {error}") from None


class _Reader(pickle.Unpickler):
    def __init__(self, archive: zipfile.ZipFile, reading: Reading) -> None:
        self.archive, self.reading, self.name = archive, reading, reading.name
        self.memories: dict[str, Tensor] = {}
        # The archive's one folder has any name that the writer chose.
        names = [PurePosixPath(x) for x in archive.namelist()]
        pickles = [x for x in names if x.name == "data.pkl" and len(x.parts) == len(("*", "*"))]
        if not pickles:
            raise FileFormatError(f"{self.name} is a zip archive, but no checkpoint of PyTorch's")
        self.folder = pickles[0].parent
        if self.text("byteorder", "little") != "little":
            raise NotSupported(f"load: {self.name} is of another byte order. {reading.remedy}")
        super().__init__(archive.open(str(pickles[0])))

    def text(self, title: str, default: str) -> str:
        path = str(self.folder / title)
        if path not in self.archive.namelist():
            return default
        return self.archive.read(path).decode()

    def persistent_load(self, pid: Any) -> Tensor:  # noqa: ANN401 - pickle's
        """The memory with a number, flat; several tensors may share it."""
        _, dtype, key, _, count = pid
        if key not in self.memories:
            data = self.archive.read(str(self.folder / "data" / str(key)))
            if len(data) < count * dtype.itemsize:
                raise FileFormatError(f"{self.name}: the memory {key} is shorter than its tensors")
            data = data[: count * dtype.itemsize]
            self.memories[key] = _core.from_bytes(data, [count], dtype, False)
        return self.memories[key]

    def find_class(self, module: str, name: str) -> object:
        home = module.partition(".")[0]
        value = PLAIN.get(module, {}).get(name)
        if module == "torch._utils":
            value = TENSORS.get(name)
        elif home == "torch":
            value = STORAGES.get(name) or _named(name)
        if value is not None:
            return value
        for entry in self.reading.allowed:
            names = (getattr(entry, "__module__", ""), getattr(entry, "__qualname__", ""))
            if names == (module, name):
                return entry
        if home in {"torch", "torchvision"}:
            raise NotSupported(
                f"load: {self.name} holds {module}.{name}, and of PyTorch's checkpoints GT reads "
                f"tensors and plain values: save the state_dict(). {self.reading.remedy}"
            )
        if self.reading.weights_only:
            raise InvalidUse(
                f"load: {self.name} names {module}.{name}, which weights_only does not allow; "
                f"where you trust it: torch.serialization.add_safe_globals([{name}])"
            )
        return super().find_class(module, name)


def _named(name: str) -> object:
    """A dtype, or a function that describes tensors."""
    value = getattr(gt, name, None)
    is_plain = isinstance(value, gt.dtype) or value in (gt.Size, gt.device)
    return value if is_plain else None
