"""A TCP proxy before the dispatcher, whose connections can be cut: a network that fails."""

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType

CHUNK_BYTES = 65_536


class CuttingProxy:
    """Passes bytes between its own port and `target` until it is told to cut.

    Args:
        target: Address of the dispatcher.
        alter: Changes bytes on their way from it.
        seen: Gets a copy of the bytes on their way to it.
    """

    def __init__(
        self,
        target: tuple[str, int],
        alter: Callable[[bytes], bytes] | None = None,
        seen: bytearray | None = None,
    ) -> None:
        self._target = target
        self._alter = alter or _same
        self._seen = seen
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()  # guards the two below
        self._open: list[socket.socket] = []
        self.connections = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """End every connection there is; new ones are passed on."""
        with self._lock:
            for connection in self._open:
                _shut(connection)
            self._open.clear()

    def __enter__(self) -> "CuttingProxy":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _shut(self._listener)
        self.cut()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:  # the target is gone
                near.close()
                continue
            with self._lock:
                self._open += [near, far]
                self.connections += 1
            for source, sink, alter in ((near, far, self._look), (far, near, self._alter)):
                thread = threading.Thread(target=_pass, args=(source, sink, alter))
                self._threads.append(thread)
                thread.start()

    def _look(self, chunk: bytes) -> bytes:
        if self._seen is not None:
            self._seen.extend(chunk)
        return chunk


def _same(chunk: bytes) -> bytes:
    return chunk


def _pass(source: socket.socket, sink: socket.socket, alter: Callable[[bytes], bytes]) -> None:
    try:
        while chunk := source.recv(CHUNK_BYTES):
            sink.sendall(alter(chunk))
    except OSError:
        pass  # cut
    _shut(sink)
    source.close()


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was first
        connection.shutdown(socket.SHUT_RDWR)
