"""One safetensors file: its header, what a damaged one is refused for, its tensors.

Files come from outside: everything in one is checked before it is used, and nothing is allocated
that the file itself is not as large as. What several files and nested objects are stands in
serialization.py.

Layout: 8 bytes of header length (little endian), the header (JSON, padded with spaces), the data.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import BinaryIO, NamedTuple, TypeAlias

import gt
from gt import _core
from gt._core import Tensor
from gt.errors import Error, InvalidValue

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

HEADER_BYTES_MAX = 100_000_000  # the format's own limit: bounds what a hostile file makes us read
ALIGNMENT = 8  # bytes; of the data's start, so that a reader may map it
METADATA = "__metadata__"


class FileFormatError(Error, ValueError):
    """A file that is no safetensors file, or a damaged one."""


class Entry(NamedTuple):
    """One tensor in a file."""

    dtype: gt.dtype
    shape: tuple[int, ...]
    start: int  # bytes from the data's start
    end: int


def write(path: pathlib.Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a file that replaces what is there at once or, on an error, leaves it."""
    header, order = _header(tensors, metadata)

    def parts() -> Iterator[bytes | memoryview]:
        yield len(header).to_bytes(8, "little")
        yield header
        yield from (_core.read_bytes(tensors[name]).data for name in order)

    replace(path, parts)


def replace(path: pathlib.Path, parts: Callable[[], Iterable[bytes | memoryview]]) -> None:
    """Put a file with these bytes in the place of what is there, once all are written."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with temporary.open("xb") as file:
            file.writelines(parts())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # usually it has been renamed


def read(path: pathlib.Path, names: set[str] | None = None) -> tuple[dict[str, Tensor], Json]:
    """The tensors of a file, or those of `names`; and its metadata.

    Raises:
        FileFormatError: Not a safetensors file, a damaged one, or one without a tensor of `names`.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, data_start = _read_header(file, size)
        metadata = header.pop(METADATA, {})
        entries = {name: _entry(name, value) for name, value in header.items()}
        _check_layout(entries, size - data_start)
        for name in sorted((names or set()) - entries.keys()):
            raise FileFormatError(f"it has no tensor {name!r}")
        wanted = (
            entries if names is None else {name: entries[name] for name in entries.keys() & names}
        )
        return {
            name: _read_tensor(file, data_start, name, entry) for name, entry in wanted.items()
        }, metadata


def byte_count(tensor: Tensor) -> int:
    """Bytes that a tensor takes in a file."""
    return _byte_count(tensor.dtype, tensor.shape)


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> tuple[bytes, list[str]]:
    """The header's bytes, and the order of the data: wide elements first, so all are aligned."""
    order = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    spans: dict[str, tuple[int, int]] = {}
    end = 0
    for name in order:
        start, end = end, end + _byte_count(tensors[name].dtype, tensors[name].shape)
        spans[name] = (start, end)
    header: dict[str, object] = {}
    if metadata:
        header[METADATA] = dict(metadata)
    codes = {dtype: code for code, dtype in _dtypes()}
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": codes[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": list(spans[name]),
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    if len(text) > HEADER_BYTES_MAX:
        raise InvalidValue(
            f"save: the header takes {len(text)} bytes, the limit is {HEADER_BYTES_MAX}"
        )
    return text, order


def _read_header(file: BinaryIO, size: int) -> tuple[dict[str, Json], int]:
    """The header, and where the data starts."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise FileFormatError(
            f"its header claims {length} bytes and the file has {max(size - 8, 0)} more"
        )
    if length > HEADER_BYTES_MAX:
        raise FileFormatError(f"its header claims {length} bytes, the limit is {HEADER_BYTES_MAX}")
    try:
        header = parsed(file.read(length).decode())
    except UnicodeDecodeError as error:
        raise FileFormatError(f"its header is not UTF-8: {error}") from None
    if not isinstance(header, dict):
        raise FileFormatError("its header is not a JSON object")
    return header, 8 + length


def parsed(text: str) -> Json:
    """JSON from a file, in which nothing is named twice."""
    try:
        value: Json = json.loads(text, object_pairs_hook=_without_duplicates)
    except FileFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"its header is not JSON: {error}") from None
    return value


def _without_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FileFormatError("its header names something twice")
    return found


def _entry(name: str, value: Json) -> Entry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise FileFormatError(f"tensor {name!r} is not described by dtype, shape and data_offsets")
    code, shape, offsets = value["dtype"], _counts(value["shape"]), _counts(value["data_offsets"])
    dtype = dict(_dtypes()).get(code if isinstance(code, str) else "")
    if dtype is None:
        raise FileFormatError(f"tensor {name!r} has dtype {code!r}, which GT does not have")
    if shape is None or offsets is None or len(offsets) != 2:
        raise FileFormatError(
            f"tensor {name!r} has shape {value['shape']} and offsets {value['data_offsets']}"
        )
    start, end = offsets
    if end - start != _byte_count(dtype, shape):
        raise FileFormatError(
            f"tensor {name!r} of shape {list(shape)} and dtype {code} takes "
            f"{_byte_count(dtype, shape)} bytes, its offsets {[start, end]} span {end - start}"
        )
    return Entry(dtype, shape, start, end)


def _counts(value: Json) -> tuple[int, ...] | None:
    """A list of integers from 0 up, or None."""
    if not isinstance(value, list):
        return None
    counts = tuple(
        part for part in value if isinstance(part, int) and not isinstance(part, bool) and part >= 0
    )
    return counts if len(counts) == len(value) else None


def _check_layout(entries: Mapping[str, Entry], data_bytes: int) -> None:
    """The tensors fill the data without gaps or overlaps, which also bounds what is read."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != end:
            kind = "overlaps the one before" if entry.start < end else "leaves a gap"
            raise FileFormatError(
                f"tensor {name!r} starts at {entry.start} and not at {end}: it {kind}"
            )
        end = entry.end
    if end != data_bytes:
        raise FileFormatError(f"its tensors take {end} bytes and the file has {data_bytes} of data")


def _read_tensor(file: BinaryIO, data_start: int, name: str, entry: Entry) -> Tensor:
    file.seek(data_start + entry.start)
    data = file.read(entry.end - entry.start)
    if entry.dtype == gt.bool and data.translate(None, b"\0\1"):
        raise FileFormatError(f"tensor {name!r} of dtype BOOL has bytes other than 0 and 1")
    return _core.from_bytes(data, entry.shape, entry.dtype, False)


def _byte_count(dtype: gt.dtype, shape: tuple[int, ...]) -> int:
    return dtype.itemsize * math.prod(shape)


def _dtypes() -> Iterator[tuple[str, gt.dtype]]:
    """(the format's name, dtype)."""
    yield from (
        ("F64", gt.float64),
        ("F32", gt.float32),
        ("F16", gt.float16),
        ("BF16", gt.bfloat16),
    )
    yield from (("I64", gt.int64), ("I32", gt.int32), ("I16", gt.int16), ("I8", gt.int8))
    yield from (("U8", gt.uint8), ("BOOL", gt.bool))
