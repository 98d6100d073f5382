"""gt.save and gt.load: tensors, and dictionaries and lists of them, as safetensors files.

A flat dictionary of tensors is a plain safetensors file that every reader of the format
understands. Anything else is stored under dotted names, and its structure as JSON in the file's
metadata. No pickle: a file holds data only. Files come from outside: everything in one is checked,
and what does not fit is a FileFormatError.

Layout: 8 bytes of header length (little endian), the header (JSON, padded with spaces), the data.
"""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

from __future__ import annotations

import json
import math
import os
import pathlib
import threading
from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple, TypeAlias

import gt
from gt import _core
from gt._core import Tensor
from gt.errors import Error, InvalidType, InvalidValue

__all__ = ["FileFormatError", "load", "save"]

Path: TypeAlias = str | os.PathLike[str]
Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
Saved: TypeAlias = (
    Tensor
    | bool
    | int
    | float
    | str
    | list["Saved"]
    | tuple["Saved", ...]
    | dict[str | int, "Saved"]
    | None
)

HEADER_BYTES_MAX = 100_000_000  # the format's own limit: bounds what a hostile file makes us read
DEPTH_MAX = 64  # of nested dictionaries and lists: far above an optimizer's, far below the stack
ALIGNMENT = 8  # bytes; of the data's start, so that a reader may map it
METADATA = "__metadata__"
STRUCTURE = "gt.structure"


class FileFormatError(Error, ValueError):
    """A file that is no safetensors file, or a damaged one."""


class Entry(NamedTuple):
    """One tensor in a file."""

    dtype: gt.dtype
    shape: tuple[int, ...]
    start: int  # bytes from the data's start
    end: int


def save(obj: object, f: Path) -> None:
    """Write a tensor, or dictionaries and lists with tensors, numbers, strings and None, to a file.

    Args:
        obj: Such as a module's or an optimizer's state_dict(), or a dictionary of both.
        f: The path; a file that is there is replaced at once or, on an error, kept.

    Raises:
        InvalidType: Something that the format cannot hold, named with its place.
    """
    tensors: dict[str, Tensor] = {}
    structure = _described(obj, (), tensors)
    plain = isinstance(obj, Mapping) and list(tensors) == list(obj)
    header, order = _header(tensors, None if plain else structure)
    target = pathlib.Path(f)
    temporary = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with temporary.open("xb") as file:
            file.write(len(header).to_bytes(8, "little"))
            file.write(header)
            file.writelines(_core.read_bytes(tensors[name]).data for name in order)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)  # usually it has been renamed


def load(
    f: Path, map_location: object = None, *, weights_only: bool = True, mmap: bool | None = None
) -> Saved:
    """Read what gt.save (or any writer of safetensors files) wrote; tensors require no gradient.

    Args:
        f: The path.
        map_location: Taken as PyTorch takes it; a device places nothing.
        weights_only: A file holds nothing else.
        mmap: Each tensor is read once, as it is uploaded.

    Raises:
        FileFormatError: Not a safetensors file, or a damaged one.
    """
    with pathlib.Path(f).open("rb") as file:
        try:
            return _loaded(file)
        except FileFormatError as error:
            name = os.fspath(f)
            raise FileFormatError(
                f"{name} is no safetensors file, or a damaged one: {error}"
            ) from None


def _loaded(file: BinaryIO) -> Saved:
    size = os.fstat(file.fileno()).st_size
    header, data_start = _read_header(file, size)
    metadata = header.pop(METADATA, {})
    entries = {name: _entry(name, value) for name, value in header.items()}
    _check_layout(entries, size - data_start)
    tensors = {name: _read_tensor(file, data_start, name, entry) for name, entry in entries.items()}
    structure: Json = {"dict": [[name, {"tensor": name}] for name in tensors]}
    if isinstance(metadata, dict) and STRUCTURE in metadata:
        text = metadata[STRUCTURE]
        structure = _parsed(text) if isinstance(text, str) else {}
    return _rebuilt(structure, tensors, DEPTH_MAX)


# ---- structure: {"dict": [[key, …], …]}, {"list": […]}, {"tuple": […]}, {"tensor": name},
# {"float": "inf"}, or a plain value ----


def _described(obj: object, place: tuple[str, ...], tensors: dict[str, Tensor]) -> Json:
    """The structure of `obj`; its tensors are added to `tensors` under dotted names."""
    where = ".".join(place) or "the object"
    if len(place) > DEPTH_MAX:
        raise InvalidType(f"save: {where} is nested deeper than {DEPTH_MAX}")
    if isinstance(obj, Tensor):
        name = ".".join(place) or "tensor"
        while name in tensors or name == METADATA:  # {"a.b": x, "a": {"b": y}}
            name += "_"
        tensors[name] = obj
        return {"tensor": name}
    if isinstance(obj, Mapping):
        for key in obj:
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise InvalidType(
                    f"save: {where} has a key {key!r}; only strings and integers can be saved"
                )
        items: list[Json] = [
            [key, _described(value, (*place, str(key)), tensors)] for key, value in obj.items()
        ]
        return {"dict": items}
    if isinstance(obj, list | tuple):
        kind = "list" if isinstance(obj, list) else "tuple"
        return {kind: [_described(value, (*place, str(i)), tensors) for i, value in enumerate(obj)]}
    if isinstance(obj, float) and not math.isfinite(obj):
        return {"float": repr(obj)}
    if obj is None or isinstance(obj, bool | int | float | str):
        return obj
    raise InvalidType(
        f"save: {where} is a {type(obj).__name__}; only tensors, dictionaries, lists, tuples, "
        "numbers, strings and None can be saved"
    )


def _rebuilt(structure: Json, tensors: Mapping[str, Tensor], depth: int) -> Saved:
    if depth < 0:
        raise FileFormatError(f"its structure is nested deeper than {DEPTH_MAX}")
    if structure is None or isinstance(structure, bool | int | float | str):
        return structure
    if isinstance(structure, dict) and len(structure) == 1:
        ((kind, body),) = structure.items()
        if kind == "tensor" and isinstance(body, str) and body in tensors:
            return tensors[body]
        if kind == "float" and body in ("nan", "inf", "-inf"):
            return float(str(body))
        if kind in ("list", "tuple") and isinstance(body, list):
            values = [_rebuilt(value, tensors, depth - 1) for value in body]
            return values if kind == "list" else tuple(values)
        if kind == "dict" and isinstance(body, list):
            pairs = [_pair(item) for item in body]
            return {key: _rebuilt(value, tensors, depth - 1) for key, value in pairs}
    raise FileFormatError(f"its structure has a part without meaning: {str(structure)[:80]}")


def _pair(item: Json) -> tuple[str | int, Json]:
    if isinstance(item, list) and len(item) == 2:
        key, value = item
        if isinstance(key, str | int) and not isinstance(key, bool):
            return key, value
    raise FileFormatError(f"its structure has an item without meaning: {str(item)[:80]}")


# ---- header ----


def _header(tensors: Mapping[str, Tensor], structure: Json) -> tuple[bytes, list[str]]:
    """The header's bytes, and the order of the data: wide elements first, so all are aligned."""
    order = sorted(tensors, key=lambda name: -tensors[name].dtype.itemsize)
    spans: dict[str, tuple[int, int]] = {}
    end = 0
    for name in order:
        start, end = end, end + _byte_count(tensors[name].dtype, tensors[name].shape)
        spans[name] = (start, end)
    header: dict[str, object] = {}
    if structure is not None:
        header[METADATA] = {"format": "gt", STRUCTURE: json.dumps(structure, separators=(",", ":"))}
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
        header = _parsed(file.read(length).decode())
    except UnicodeDecodeError as error:
        raise FileFormatError(f"its header is not UTF-8: {error}") from None
    if not isinstance(header, dict):
        raise FileFormatError("its header is not a JSON object")
    return header, 8 + length


def _parsed(text: str) -> Json:
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
