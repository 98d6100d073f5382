"""gt.save and gt.load: tensors, and dictionaries and lists of them, as safetensors files.

A flat dictionary of tensors is a plain safetensors file that every reader of the format
understands. Anything else is stored under dotted names, with its structure as JSON in the file's
metadata. Data larger than the limit of one file are written to several with an index, as Hugging
Face's libraries write and read them. A file holds data only, unless `pickle=True` asks for whole
objects (pickled_file.py). A bad file raises FileFormatError (safetensors_file.py). PyTorch reads
its own checkpoints if it is loaded, otherwise torch_checkpoint.py does.
"""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import IO, Any, Literal, TypeAlias, TypeGuard

from gt import _core
from gt._core import Tensor
from gt.compat import misses, torch_imports
from gt.errors import InvalidType, InvalidUse, InvalidValue, NotSupported
from gt.tensors import interop, pickled_file, safetensors_file
from gt.tensors.safetensors_file import METADATA, FileFormatError, Json, parsed

__all__ = ["FileFormatError", "load", "save"]

Path: TypeAlias = str | os.PathLike[str]
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

DEPTH_MAX = 64  # nested dictionaries and lists: far below the stack's limit
STRUCTURE = "gt.structure"
INDEX = ".index.json"
TORCH_SUFFIXES = (".pt", ".pth")
TORCH_MAGIC = (b"PK\x03\x04", b"\x80\x02")  # a zip archive; a pickle, the older format
UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def save(
    obj: object,
    f: Path | IO[bytes],
    *,
    max_shard_size: int | str | None = None,
    pickle: bool = False,
    format: Literal["safetensors", "torch"] = "safetensors",
) -> None:
    """Write a tensor, or dictionaries and lists of tensors, numbers, strings and None, to a file.

    Args:
        obj: The object, such as a module's or an optimizer's state_dict(), or a dictionary of both.
        f: The path; an existing file is replaced at once or, on an error, kept. Or an open file,
            such as io.BytesIO, which is written from its position on.
        max_shard_size: Limit for the bytes of tensors in one file, such as `"5GB"` or `10**9`:
            beyond it, files `NAME-00001-of-00003.safetensors` and so on are written beside `f`,
            with their index in `f.index.json`. A larger tensor has a file of its own.
        pickle: Whether to write any object, such as a whole module, with its classes by name;
            `load` reads it with `weights_only=False`.
        format: "torch" writes a file for torch.load, if PyTorch is installed.

    Raises:
        InvalidType: A value that the format cannot hold, named with its place.
        InvalidValue: A meaningless size, or a size for an open file or with `pickle` or
            `format="torch"`; an unknown format.
    """
    if format not in ("safetensors", "torch") or (pickle and format == "torch"):
        raise InvalidValue(f"save: format {format!r} with pickle={pickle}")
    pickle = pickle or (format != "torch" and _is_to_be_whole(obj))
    if pickle or format == "torch":
        if max_shard_size is not None:
            raise InvalidValue("save: max_shard_size is of safetensors files only")
        _write(pickled_file.dumped(obj) if pickle else _torch_bytes(obj), f)
        return
    tensors: dict[str, Tensor] = {}
    structure = _described(obj, (), tensors)
    plain = isinstance(obj, Mapping) and list(tensors) == list(obj)
    metadata = (
        {} if plain else {"format": "gt", STRUCTURE: json.dumps(structure, separators=(",", ":"))}
    )
    if _is_open(f, "write"):
        if max_shard_size is not None:
            raise InvalidValue("save: max_shard_size wants a path, beside which the files are")
        for part in safetensors_file.parts(tensors, metadata):
            f.write(part)
        return
    target = pathlib.Path(_path(f, "save"))
    if target.suffix in TORCH_SUFFIXES:
        _say_format(target.suffix)
    index = target.with_name(target.name + INDEX)
    shards = [tensors] if max_shard_size is None else _shards(tensors, _bytes(max_shard_size))
    if len(shards) == 1:
        safetensors_file.write(target, tensors, metadata)
        return
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"{target.stem}-{number:05}-of-{len(shards):05}{target.suffix}"
        safetensors_file.write(target.with_name(name), shard, {})
        places |= dict.fromkeys(shard, name)
    total = sum(map(safetensors_file.byte_count, tensors.values()))
    listed = {"metadata": {"total_size": total, **metadata}, "weight_map": places}
    text = json.dumps(listed, indent=2, ensure_ascii=False).encode()
    safetensors_file.replace(index, lambda: [text])
    target.unlink(missing_ok=True)  # an earlier single file


@functools.cache  # once for each
def _say_format(suffix: str) -> None:
    """Notify users of PyTorch's file endings that torch.load does not read the file."""
    from gt.sessions import notices

    notices.say(
        f"gt.save writes safetensors, also into a file that ends with {suffix}: gt.load reads it, "
        'torch.load does not (gt.save(…, format="torch") writes what it reads)',
        notices.INFO,
    )


def _is_to_be_whole(obj: object) -> bool:
    """True if safetensors cannot hold `obj` and the program is written for PyTorch, which saves
    anything.
    """
    if not torch_imports.is_installed():
        return False
    try:
        _described(obj, (), {})
    except InvalidType:
        return True
    return False


def _torch_bytes(obj: object) -> bytes:
    torch = interop.imported_torch("save")
    file = io.BytesIO()
    torch.save(interop.to_torch(obj), file)
    return file.getvalue()


def _write(data: bytes, f: Path | IO[bytes]) -> None:
    if _is_open(f, "write"):
        f.write(data)
        return
    safetensors_file.replace(pathlib.Path(_path(f, "save")), lambda: [data])


def load(
    f: Path | IO[bytes],
    map_location: object = None,
    *,
    weights_only: bool = True,
    mmap: bool | None = None,
) -> Saved:
    """Read a file of gt.save (or of any writer of safetensors files); tensors require no gradient.

    A checkpoint of torch.save is read by PyTorch if it is installed, else without it; its tensors
    become GT's.

    Args:
        f: The path; for several files that of their index, or the one that was saved to. Or an open
            file that can be read and sought, such as io.BytesIO, which is read from its position to
            its end.
        map_location: Accepted as in PyTorch, without effect.
        weights_only: False reads whole objects, which run code: of `save(pickle=True)`, or of a
            PyTorch checkpoint as in torch.load. A safetensors file holds nothing else.
        mmap: Accepted without effect: each tensor is read once, at its upload.

    Raises:
        FileFormatError: The file is not a safetensors file, or is damaged.
        NotSupported: The checkpoint can be read only by PyTorch, which is not installed.
    """
    if _is_open(f, "read"):
        return _load_open(f, weights_only=weights_only)
    path = pathlib.Path(_path(f, "load"))
    index = path.with_name(path.name + INDEX)
    if not path.exists() and index.exists():
        path = index
    with path.open("rb") as file:
        if _begins(file, pickled_file.MAGIC):
            return _load_pickled(file, path, weights_only=weights_only)
        if _is_torch(file):
            return _load_torch(file, path, weights_only=weights_only)
    try:
        if path.name.endswith(INDEX):
            return _structured(*_indexed(path))
        return _structured(*safetensors_file.read(path))
    except FileFormatError as error:
        raise FileFormatError(f"{path} is no safetensors file, or a damaged one: {error}") from None


def _load_open(file: IO[bytes], *, weights_only: bool) -> Saved:
    name = f"the {type(file).__name__}"
    if _begins(file, pickled_file.MAGIC):
        return _load_pickled(file, name, weights_only=weights_only)
    if _is_torch(file):
        return _load_torch(file, name, weights_only=weights_only)
    try:
        return _structured(*safetensors_file.read_open(file))  # type: ignore[arg-type] # IO[bytes]
    except FileFormatError as error:
        raise FileFormatError(f"{name} is no safetensors file, or a damaged one: {error}") from None


def _structured(tensors: dict[str, Tensor], metadata: object) -> Saved:
    structure: Json = {"dict": [[name, {"tensor": name}] for name in tensors]}
    if isinstance(metadata, dict) and STRUCTURE in metadata:
        text = metadata[STRUCTURE]
        structure = parsed(text) if isinstance(text, str) else {}
    return _rebuilt(structure, tensors, DEPTH_MAX)


def _is_open(f: object, method: str) -> TypeGuard[IO[bytes]]:
    return not isinstance(f, str | os.PathLike) and hasattr(f, method)


def _path(f: object, purpose: str) -> Path:
    if not isinstance(f, str | os.PathLike):
        raise InvalidType(
            f"{purpose}: expected a path or an open binary file, got {type(f).__name__}"
        )
    return f


# ---- checkpoints of PyTorch's ----


def _is_torch(file: IO[bytes]) -> bool:
    return _begins(file, *TORCH_MAGIC)


def _begins(file: IO[bytes], *magic: bytes) -> bool:
    begin = file.tell()
    first = file.read(max(map(len, magic)))
    file.seek(begin)
    return first.startswith(magic)


def _load_pickled(file: IO[bytes], name: object, *, weights_only: bool) -> Saved:
    if weights_only and _safe_globals:
        return pickled_file.read_allowed(file, _safe_globals)  # type: ignore[return-value]
    if weights_only:
        raise InvalidUse(
            f"load: {name} holds whole objects, and reading them runs the code that it names; "
            "where you trust it: gt.load(f, weights_only=False)"
        )
    return pickled_file.read(file)  # type: ignore[return-value] # what the file holds


def _load_torch(file: IO[bytes], name: object, *, weights_only: bool) -> Saved:
    try:
        torch = interop.imported_torch("load")
    except NotSupported as error:
        from gt.tensors import torch_checkpoint

        remedy = str(error)
        if not torch_imports.is_installed():
            remedy = (
                "PyTorch is not installed here. Where it is: "
                "safetensors.torch.save_file(torch.load(file), name), which gt.load reads"
            )
        reader = torch_checkpoint.Reading(name, remedy, _safe_globals, weights_only)
        return torch_checkpoint.read(file, reader)  # type: ignore[return-value] # what it holds
    with torch.serialization.safe_globals(_safe_globals):
        values = torch.load(file, map_location="cpu", weights_only=weights_only)
    return interop.from_torch_nested(values)  # type: ignore[return-value] # what the file holds


_safe_globals: list[Any] = []


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allow classes and functions in PyTorch checkpoints that are read with weights_only."""
    _safe_globals.extend(safe_globals)


def get_safe_globals() -> list[Any]:
    """The classes and functions that `add_safe_globals` has registered."""
    return list(_safe_globals)


def clear_safe_globals() -> None:
    """Allow only PyTorch's own list."""
    _safe_globals.clear()


@contextlib.contextmanager
def safe_globals(safe_globals: list[Any]) -> Iterator[None]:
    """Allow classes and functions within a `with` block."""
    before = get_safe_globals()
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe_globals[:] = before


# ---- several files ----


def _bytes(size: int | str) -> int:
    """A number of bytes, perhaps with a unit."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]I?B)?\s*", str(size).upper())
    count = int(float(match[1]) * UNITS[match[2] or ""]) if match else 0
    if count <= 0 or isinstance(size, bool):
        raise InvalidValue(f"save: max_shard_size {size!r} is no size; write 10**9 or '5GB'")
    return count


def _shards(tensors: Mapping[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    """The tensors in order, as many in each file as fit."""
    shards: list[dict[str, Tensor]] = [{}]
    used = 0
    for name, tensor in tensors.items():
        size = safetensors_file.byte_count(tensor)
        if shards[-1] and used + size > limit:
            shards.append({})
            used = 0
        shards[-1][name] = tensor
        used += size
    return shards


def _indexed(path: pathlib.Path) -> tuple[dict[str, Tensor], Json]:
    """The tensors of all files that an index names, in its order; and its metadata."""
    if path.stat().st_size > safetensors_file.HEADER_BYTES_MAX:
        raise FileFormatError(f"the index is larger than {safetensors_file.HEADER_BYTES_MAX} bytes")
    try:
        index = parsed(path.read_bytes().decode())
    except UnicodeDecodeError as error:
        raise FileFormatError(f"the index is not UTF-8: {error}") from None
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(index, dict) or not isinstance(places, dict):
        raise FileFormatError("the index has no weight_map")
    named: dict[str, set[str]] = {}
    for name, file in places.items():
        # Files beside the index only: a path could name any file of the machine.
        if not isinstance(file, str) or pathlib.PurePath(file).name != file or "\0" in file:
            raise FileFormatError(f"tensor {name!r} is said to be in {file!r}, which names no file")
        named.setdefault(file, set()).add(name)
    tensors: dict[str, Tensor] = {}
    for file, names in named.items():
        tensors |= _shard(path.with_name(file), names)
    return {name: tensors[name] for name in places}, index.get("metadata")


def _shard(path: pathlib.Path, names: set[str]) -> dict[str, Tensor]:
    """The tensors of a file that an index lists."""
    try:
        return safetensors_file.read(path, names)[0]
    except FileNotFoundError:
        raise FileFormatError(f"its file {path.name} is missing") from None
    except FileFormatError as error:
        raise FileFormatError(f"in {path.name}: {error}") from None


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
    raise _unsaveable(obj, where)


def _unsaveable(obj: object, where: str) -> InvalidType:
    remedy = ""
    if callable(getattr(obj, "state_dict", None)):
        remedy = ": save its state_dict(), and load that into one that the program has made"
    return InvalidType(
        f"save: {where} is a {_core.class_name(obj)}; only tensors, dictionaries, lists, tuples, "
        f"numbers, strings and None can be saved{remedy}; or gt.save(obj, f, pickle=True) for a "
        "whole object, which gt.load(f, weights_only=False) reads"
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


__getattr__ = misses.hook(__name__)
