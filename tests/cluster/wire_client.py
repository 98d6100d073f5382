"""A client in the standard library's Python, written from docs/wire.md alone: no GT, no numpy.

It stays on TCP, sends a frame an instruction, and knows a handful of operators.
"""

import itertools
import math
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

MAGIC = b"GT\x01\n"
VERSION = 1
HELLO, WELCOME, REFUSAL = 1, 2, 3
UPLOAD, ADD, GATHER, FREE, READ, CHUNK = 0x0105, 0x0324, 0x0803, 0x0B01, 0x0B02, 0x0B03
REPLY, FAILURE, FAILED_REPLY, GOODBYE = 0xF001, 0xF003, 0xF004, 0xF009
PAYLOAD_BYTES_MAX = 32_768
ACKNOWLEDGE_FRAMES = 16
DTYPES = {5: "q", 8: "f", 9: "d"}  # i64, f32, f64: the code and struct's letter
F32, I64 = 8, 5
WAIT_SECONDS = 20.0


class Refused(Exception):
    """The dispatcher does not let us in; the text says why."""


class Failed(Exception):
    """A value cannot be read; the text is the first cause's."""


class Closed(Exception):
    """The dispatcher has ended the connection; the text is its reason, if it gave one."""


@dataclass(frozen=True)
class Message:
    """A message from the dispatcher: a code, and the bytes after the first word."""

    code: int
    body: bytes


def long(value: int) -> bytes:
    """A 64-bit number: two words, low word first."""
    return struct.pack("<q", value)


def ints(values: Sequence[int]) -> bytes:
    """An attribute of kind ints."""
    return struct.pack("<I", len(values)) + b"".join(long(value) for value in values)


def padded(data: bytes) -> bytes:
    """bytes(n): the length, the bytes, zeros up to a whole word."""
    return struct.pack("<I", len(data)) + data + bytes(-len(data) % 4)


def instruction(code: int, *words: int, attributes: bytes = b"", payload: bytes = b"") -> bytes:
    """Word 0 with the length, tag 0, consumes nothing, signal 0; then what follows."""
    body = struct.pack(f"<2I{len(words)}I", 0, 0, *words) + attributes + payload
    return struct.pack("<I", code | (4 + len(body)) // 4 << 16) + body


class Client:
    """A session.

    Args:
        address: host and port.
        token: what the dispatcher asks for, if it does.
        version: the newest version that we claim to speak, and the oldest.
    """

    def __init__(
        self, address: tuple[str, int], *, token: bytes = b"", version: int = VERSION
    ) -> None:
        self.socket = socket.create_connection(address, timeout=WAIT_SECONDS)
        self._slots = itertools.count()
        self._requests = itertools.count(1)
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._messages: list[Message] = []
        self._sent = self._received = self._told = 0
        try:
            self.socket.sendall(self._hello(token, version))
            self._welcome()
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def upload(self, values: Sequence[float], shape: Sequence[int], dtype: int = F32) -> int:
        """A new value from numbers in row-major order; returns its slot."""
        slot = self._define(shape)
        data = struct.pack(f"<{len(values)}{DTYPES[dtype]}", *values)
        first, rest = data[:PAYLOAD_BYTES_MAX], data[PAYLOAD_BYTES_MAX:]
        attributes = ints(shape) + struct.pack("<I", dtype)
        self.send(instruction(UPLOAD, slot, attributes=attributes, payload=padded(first)))
        for start in range(0, len(rest), PAYLOAD_BYTES_MAX):
            chunk, offset = rest[start : start + PAYLOAD_BYTES_MAX], PAYLOAD_BYTES_MAX + start
            self.send(instruction(CHUNK, slot, attributes=long(offset), payload=padded(chunk)))
        return slot

    def add(self, left: int, right: int) -> int:
        """The sum of two values of one shape."""
        slot = self._define(self._shapes[left])
        self.send(instruction(ADD, slot, left, right))
        return slot

    def gather(self, value: int, index: int, dim: int) -> int:
        """Elements picked by index; one that is out of range fails on the worker."""
        slot = self._define(self._shapes[index])
        self.send(instruction(GATHER, slot, value, index, attributes=long(dim)))
        return slot

    def free(self, *slots: int) -> None:
        """Drop values. The slots are not used again."""
        self.send(instruction(FREE, len(slots), *slots))

    def read(self, slot: int) -> list[float]:
        """The elements of a value.

        Raises:
            Failed: it could not be computed.
        """
        request = next(self._requests)
        count = math.prod(self._shapes[slot])
        attributes = long(request) + long(0) + long(count)
        self.send(instruction(READ, slot, attributes=attributes))
        chunks: dict[int, list[float]] = {}
        while True:
            message = self.receive()
            if message.code == FAILED_REPLY and message.body[:8] == long(request):
                raise Failed(self._failure(message.body[8:]))
            if message.code == REPLY and message.body[:8] == long(request):
                start, total, values = self._reply(message.body)
                chunks[start] = values
                if sum(len(chunk) for chunk in chunks.values()) == total:
                    return [value for start in sorted(chunks) for value in chunks[start]]

    def send(self, words: bytes) -> None:
        """Send one frame."""
        self._sent += 1
        self._frame(words)

    def receive(self) -> Message:
        """The next message, once there is one.

        Raises:
            Closed: the dispatcher said goodbye, or went without.
        """
        while not self._messages:
            length, sequence, _ = struct.unpack("<IQQ", self._exactly(20))
            words = self._exactly(length)
            if length and sequence == self._received + 1:
                self._received = sequence
                self._messages = list(self._cut(words))
            if self._received - self._told >= ACKNOWLEDGE_FRAMES:
                self._frame(b"")
        message = self._messages.pop(0)
        if message.code == GOODBYE:
            raise Closed(self._text(message.body))
        return message

    def _hello(self, token: bytes, version: int) -> bytes:
        body = struct.pack("<BBI", 0, 0, 0)  # a client, nothing present, no ring: we stay on TCP
        body += struct.pack("<H", len(token)) + token + struct.pack("<H", 4) + b"wire"
        return struct.pack("<4sHBBHH", MAGIC, 12 + len(body), HELLO, 0, version, version) + body

    def _welcome(self) -> None:
        head = self._exactly(12)
        magic, length, kind, _, _version, _oldest = struct.unpack("<4sHBBHH", head)
        body = self._exactly(length - 12)
        if magic != MAGIC or kind not in (WELCOME, REFUSAL):
            raise Closed("this is no dispatcher")
        if kind == REFUSAL:
            (count,) = struct.unpack_from("<H", body, 1)
            raise Refused(body[3 : 3 + count].decode())

    def _define(self, shape: Sequence[int]) -> int:
        slot = next(self._slots)
        self._shapes[slot] = tuple(shape)
        return slot

    def _frame(self, words: bytes) -> None:
        self._told = self._received
        self.socket.sendall(struct.pack("<IQQ", len(words), self._sent, self._received) + words)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                raise Closed("")
            data += chunk
        return data

    @staticmethod
    def _cut(words: bytes) -> list[Message]:
        messages = []
        while words:
            (first,) = struct.unpack_from("<I", words)
            length = 4 * (first >> 16)
            messages.append(Message(first & 0xFFFF, words[4:length]))
            words = words[length:]
        return messages

    @staticmethod
    def _reply(body: bytes) -> tuple[int, int, list[float]]:
        _request, start, count, total, dtype, rank = struct.unpack_from("<4Q2I", body)
        at = 40 + 8 * rank
        return start, total, list(struct.unpack_from(f"<{count}{DTYPES[dtype]}", body, at + 4))

    @classmethod
    def _failure(cls, body: bytes) -> str:
        return cls._text(body[24:])  # behind session, number, class, op code and tag

    @staticmethod
    def _text(body: bytes) -> str:
        (count,) = struct.unpack_from("<I", body)
        return body[4 : 4 + count].decode()
