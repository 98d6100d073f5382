"""A worker's input and output for tests and benchmarks: instructions as words, and its answers.

The product packs no words in Python, so this is a small packer of the format in docs/wire.md.
"""

from __future__ import annotations

import dataclasses
import pathlib
import struct

import numpy as np

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

_TABLE = pathlib.Path(__file__).parent.parent.parent / "ops.toml"
_OPS = {row["name"]: row for row in tomllib.loads(_TABLE.read_text(encoding="utf-8"))["op"]}
_ABSENT, _NUMBER = 0xFFFF_FFFF, 0xFFFF_FFFE
REPLY, DONE, FAILURE, FAILED_REPLY, BACKENDS = 0xF001, 0xF002, 0xF003, 0xF004, 0xF00C
F32 = 8
I64 = 5


def _long(value: int) -> list[int]:
    return list(struct.unpack("<2I", struct.pack("<Q", value % 2**64)))


def _double(value: float) -> list[int]:
    return list(struct.unpack("<2I", struct.pack("<d", value)))


def _scalar(value: float) -> list[int]:
    if isinstance(value, bool):
        return [0, *_long(value)]
    return [1, *_long(value)] if isinstance(value, int) else [2, *_double(value)]


def _attr(kind: str, value: object) -> list[int]:
    kind = kind.removesuffix("+")
    if kind.endswith("?"):
        return [0] if value is None else [1, *_attr(kind[:-1], value)]
    if kind in ("ints", "list"):
        return [len(value), *(word for one in value for word in _long(one))]
    if kind.startswith("choice"):
        return [kind[len("choice(") : -1].split("|").index(value)]
    pack = {"int": _long, "float": _double, "scalar": _scalar}.get(kind, lambda value: [int(value)])
    return pack(value)


def op(
    name: str,
    out: tuple[int, ...] = (),
    operands: tuple[object, ...] = (),
    attrs: tuple[object, ...] = (),
    *,
    tag: int = 0,
    consumes: int = 0,
    payload: bytes = b"",
) -> bytes:
    """One instruction: slots as ints, numbers as one-element lists, absent operands as None."""
    row = _OPS[name]
    fixed = [one for one in row["inputs"] if not one.endswith("*")]
    slots = [
        _ABSENT if one is None else _NUMBER if isinstance(one, list) else one for one in operands
    ]
    if len(fixed) < len(row["inputs"]):
        slots.insert(len(fixed), len(operands) - len(fixed))
    numbers = [word for one in operands if isinstance(one, list) for word in _scalar(one[0])]
    words = [row["code"], tag, consumes, *out, *slots, *numbers]
    specs = row.get("attrs", [])
    # Attributes appended after a row's release need not be written.
    released = [spec for spec in specs if not spec.endswith("+")]
    written = released + specs[len(released) : len(attrs)]
    for spec, value in zip(written, attrs, strict=True):
        words += _attr(spec.split(":", 1)[1], value)
    if name in ("upload", "chunk"):
        padded = payload + bytes(-len(payload) % 4)
        words += [len(payload), *struct.unpack(f"<{len(padded) // 4}I", padded)]
    words[0] |= len(words) << 16
    return struct.pack(f"<{len(words)}I", *words)


@dataclasses.dataclass(frozen=True)
class Answer:
    kind: int
    request: int
    data: bytes = b""
    text: str = ""
    tag: int = 0

    @property
    def floats(self) -> list[float]:
        return np.frombuffer(self.data, np.float32).tolist()


def _answer(kind: int, body: bytes) -> Answer:
    if kind == DONE:
        return Answer(kind, struct.unpack("<Q", body)[0])
    if kind == REPLY:
        request, _start, _count, _total, _dtype, dims = struct.unpack_from("<4Q2I", body)
        (length,) = struct.unpack_from("<I", body, 40 + 8 * dims)
        return Answer(kind, request, body[44 + 8 * dims :][:length])
    skip = 8 if kind == FAILED_REPLY else 0
    request = struct.unpack_from("<Q", body)[0] if skip else 0
    tag, length = struct.unpack_from("<2I", body, skip + 20)
    return Answer(kind, request, text=body[skip + 28 :][:length].decode(), tag=tag)


def answers(data: bytes) -> list[Answer]:
    """The messages; the chunks of one answer put together."""
    messages: list[Answer] = []
    while data:
        (first,) = struct.unpack_from("<I", data)
        length = 4 * (first >> 16)
        if first & 0xFFFF == BACKENDS:  # for the dispatcher alone
            data = data[length:]
            continue
        answer = _answer(first & 0xFFFF, data[4:length])
        if messages and answer.kind == REPLY and messages[-1].request == answer.request:
            answer = dataclasses.replace(answer, data=messages.pop().data + answer.data)
        messages.append(answer)
        data = data[length:]
    return messages


def full(slot: int, size: tuple[int, ...], value: float, dtype: int = F32) -> bytes:
    return op("full", (slot,), (), (size, value, dtype))


def read(slot: int, count: int, request: int = 1) -> bytes:
    return op("read", (), (slot,), (request, 0, count))
