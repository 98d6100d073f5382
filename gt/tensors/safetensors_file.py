"""One safetensors file: its tensors are read one at a time, at the places in its header.

Files come from outside: the format's own library, in gt._core, parses and checks the header, and no
allocation exceeds the size of the file. serialization.py handles several files and nested objects.

Layout: 8 bytes of header length (little endian), the header (JSON, padded with spaces), the data.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import BinaryIO, TypeAlias

import gt
from gt import _core
from gt._core import Tensor
from gt.errors import Error, InvalidValue

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

HEADER_BYTES_MAX = 100_000_000  # the format's own limit: bounds the read of a hostile file
METADATA = "__metadata__"  # the header's entry that is no tensor


class FileFormatError(Error, ValueError):
    """The file is no safetensors file, or is damaged."""


def write(path: pathlib.Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a file that replaces an existing one at once or, on an error, leaves it."""
    replace(path, lambda: parts(tensors, metadata))


def parts(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> Iterator[bytes | memoryview]:
    """The bytes of a file, one tensor read at a time."""
    described = [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()]
    header, order = _core.build_safetensors_header(described, list(metadata.items()))
    if len(header) - 8 > HEADER_BYTES_MAX:
        raise InvalidValue(
            f"save: the header takes {len(header) - 8} bytes, the limit is {HEADER_BYTES_MAX}"
        )
    yield header
    yield from (_core.read_bytes(tensors[name]).data for name in order)


def replace(path: pathlib.Path, parts: Callable[[], Iterable[bytes | memoryview]]) -> None:
    """Put a file with these bytes in the place of an existing one, once all are written."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with temporary.open("xb") as file:
            file.writelines(parts())
        temporary.replace(path)
    except OSError as error:  # a full disk's error names no file
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)  # usually it has been renamed


def read(
    path: pathlib.Path, names: set[str] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, or those of `names`; and its metadata.

    Raises:
        FileFormatError: The file is no safetensors file, is damaged, or lacks one of `names`.
    """
    with path.open("rb") as file:
        return read_open(file, names)


def read_open(
    file: BinaryIO, names: set[str] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and metadata from an open file's position to its end, as `read` returns them."""
    begin = file.tell()
    size = file.seek(0, os.SEEK_END) - begin
    file.seek(begin)
    header = _read_header(file, size)
    data_start = 8 + len(header)
    try:
        entries, metadata = _core.parse_safetensors_header(header, size - data_start)
    except ValueError as error:
        raise FileFormatError(str(error)) from None
    for name in sorted((names or set()) - {entry[0] for entry in entries}):
        raise FileFormatError(f"it has no tensor {name!r}")
    tensors: dict[str, Tensor] = {}
    for name, dtype, shape, start, end in entries:
        if names is None or name in names:
            file.seek(begin + data_start + start)
            tensors[name] = _tensor(name, dtype, shape, file.read(end - start))
    file.seek(begin + size)
    return tensors, metadata


def byte_count(tensor: Tensor) -> int:
    """Number of bytes that a tensor takes in a file."""
    return tensor.dtype.itemsize * math.prod(tensor.shape)


def _read_header(file: BinaryIO, size: int) -> bytes:
    """The bytes of the header in a file of this size."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise FileFormatError(
            f"its header claims {length} bytes and the file has {max(size - 8, 0)} more"
        )
    if length > HEADER_BYTES_MAX:
        raise FileFormatError(f"its header claims {length} bytes, the limit is {HEADER_BYTES_MAX}")
    return file.read(length)


def parsed(text: str) -> Json:
    """JSON from a file, checked to name nothing twice."""
    try:
        value: Json = json.loads(text, object_pairs_hook=_without_duplicates)
    except FileFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"its header is not JSON: {error}") from None
    return value


def _without_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise FileFormatError("its header names something twice")
    return entries


def _tensor(name: str, dtype: gt.dtype, shape: list[int], data: bytes) -> Tensor:
    if dtype == gt.bool and data.translate(None, b"\0\1"):
        raise FileFormatError(f"tensor {name!r} of dtype BOOL has bytes other than 0 and 1")
    return _core.from_bytes(data, shape, dtype, False)
