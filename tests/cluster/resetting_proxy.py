"""A network that resets the connections between workers: a proxy before each worker's data port."""

import contextlib
import re
import socket
import struct
import threading
from types import TracebackType

CHUNK_BYTES = 65_536
ADDRESS = re.compile(rb"127\.0\.0\.1:(\d{5})")
# SO_LINGER without a time: closing the socket resets its connection, and drops what is in flight.
RESET = struct.pack("ii", 1, 0)


class ResettingProxies:
    """Proxies before data ports, made as a dispatcher tells workers of them.

    `alter` is for the bytes on their way from the dispatcher (`cutting_proxy.CuttingProxy`).

    Args:
        bytes_max: that a connection passes in one direction before it is reset, in the middle of
            whatever that is; 0 for no limit.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.resets = 0
        self._lock = threading.Lock()  # guards the list and the count
        self._listeners: dict[bytes, socket.socket] = {}
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def alter(self, chunk: bytes) -> bytes:
        """Puts the port of a proxy in the place of a worker's."""
        return ADDRESS.sub(lambda found: b"127.0.0.1:" + self._port_before(found[1]), chunk)

    def reset(self) -> None:
        """Reset every connection there is; new ones are passed on."""
        with self._lock:
            for connection in self._open:
                _wake_to_reset(connection)
            self.resets += bool(self._open)
            self._open.clear()

    def __enter__(self) -> "ResettingProxies":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for listener in self._listeners.values():
            listener.shutdown(socket.SHUT_RDWR)
        self.reset()
        for thread in self._threads:
            thread.join()
        for listener in self._listeners.values():
            listener.close()

    def _port_before(self, port: bytes) -> bytes:
        with self._lock:
            if port not in self._listeners:
                listener = socket.create_server(("127.0.0.1", 0))
                self._listeners[port] = listener
                self._start(self._accept, listener, int(port))
            port = str(self._listeners[port].getsockname()[1]).encode()
        assert len(port) == len("65535"), "the address has to stay as long as it was"
        return port

    def _start(self, *call: object) -> None:
        thread = threading.Thread(target=call[0], args=call[1:])  # type: ignore[arg-type]  # a function and what it takes
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, port: int) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", port))
            except OSError:  # the worker is gone
                near.close()
                continue
            with self._lock:
                self._open += [near, far]
                self._start(self._pass, near, far)
                self._start(self._pass, far, near)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        passed = 0
        with contextlib.suppress(OSError):  # reset, or closed by a worker
            while chunk := source.recv(CHUNK_BYTES):
                passed += len(chunk)
                excess = passed - self.bytes_max if self.bytes_max else 0
                sink.sendall(chunk[:-excess] if excess > 0 else chunk)
                if excess > 0:
                    with self._lock:
                        self.resets += 1
                    _wake_to_reset(source)
                    _wake_to_reset(sink)
                    break
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        source.close()


def _wake_to_reset(connection: socket.socket) -> None:
    """Let the thread that reads it close it, with a reset."""
    with contextlib.suppress(OSError):  # the other side was first
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.shutdown(socket.SHUT_RD)
