"""A worker in a thread of this process, with the dispatcher's end of it: docs/wire.md's frames.

A worker executes one frame after the other, so each says how far it can look ahead.
"""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType

from worker_words import op

from gt import _core

WAIT_SECONDS = 30.0
_HELLO_HEAD, _WELCOME, _VERSION = 12, 2, 1
_HAS_INDEX = 1 << 1
_LAST = 2**62  # a request that no test uses


class ThreadWorker:
    """One worker; `with` ends it.

    Args:
        backend: a `gt.worker.backend.Backend`.
    """

    def __init__(self, backend: object) -> None:
        self._backend = backend
        self._error: BaseException | None = None
        self._sent = self._received = 0
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(WAIT_SECONDS)
            self._thread = threading.Thread(target=self._serve, args=(server.getsockname()[1],))
            self._thread.start()
            self._socket, _ = server.accept()
        self._socket.settimeout(WAIT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        (length,) = struct.unpack_from("<H", hello := self._exactly(_HELLO_HEAD), 4)
        self._exactly(length - len(hello))
        body = struct.pack("<BBIIQQQIH", _HAS_INDEX, 0, 0, 1, 0, 0, 0, 0, 0)[:-2]
        head = struct.pack("<4sHBBHH", hello[:4], 12 + len(body), _WELCOME, 0, _VERSION, _VERSION)
        self._socket.sendall(head + body)

    def __enter__(self) -> ThreadWorker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def run(self, words: bytes) -> bytes:
        """Executes the words as one frame; returns the messages that they are answered with."""
        if words:  # a frame without words only acknowledges
            self._send(words)
        self._send(op("synchronize", (), (), (_LAST,)))
        done, answers = struct.pack("<Q", _LAST), b""
        while True:
            frame = self._receive()
            while frame:
                length = 4 * (struct.unpack_from("<I", frame)[0] >> 16)
                message, frame = frame[:length], frame[length:]
                if message[4:12] == done:
                    return answers
                answers += message

    def _serve(self, port: int) -> None:
        try:
            with self._backend.guard():
                _core.run_on_socket(
                    host="127.0.0.1",
                    port=port,
                    unix=None,
                    index=None,
                    token="",
                    tls_ca=None,
                    rings=False,
                    backend=self._backend,
                )
        except BaseException as error:  # noqa: BLE001  raised where the worker is ended
            self._error = error

    def _send(self, words: bytes) -> None:
        self._sent += 1
        self._socket.sendall(struct.pack("<IQQ", len(words), self._sent, self._received) + words)

    def _receive(self) -> bytes:
        length, sequence, _acknowledged = struct.unpack("<IQQ", self._exactly(20))
        if length:
            self._received = sequence
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            chunk = self._socket.recv(length - len(data))
            if not chunk:
                raise ConnectionError("the worker has ended") from self._error
            data += chunk
        return data
