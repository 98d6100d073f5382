"""Errors of `gt.connect`: at once, clear, and the old session goes on."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster

import gt

WITHIN_SECONDS = 25.0  # ten times what a dial waits
HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


def handshake(kind: int, version: int, oldest: int, body: bytes) -> bytes:
    """A handshake message as docs/wire.md has it."""
    return struct.pack("<4sHBBHH", b"GT\x01\n", 12 + len(body), kind, 0, version, oldest) + body


def refusal(text: bytes) -> bytes:
    return handshake(3, 9, 7, struct.pack("<BH", 0, len(text)) + text)


@contextlib.contextmanager
def stranger(answer: bytes | None) -> Iterator[str]:
    """The address of somebody who answers so to whatever is said; None: never."""
    done = threading.Event()

    def talk() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1024)
            if answer is None:
                done.wait(WITHIN_SECONDS * 2)
            else:
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        done.set()
        thread.join()


def refused(address: str, *words: str) -> None:
    """Connecting fails before long, in words that include these."""
    began = time.monotonic()
    with pytest.raises(gt.errors.ConnectionLost) as error:
        gt.connect(address)
    assert time.monotonic() - began < WITHIN_SECONDS
    for word in ("gt.connect: ", address, *words):
        assert word in str(error.value)


def test_nothing_is_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    refused(address, "nothing answers", f"gt-dispatcher --listen {address}")
    path = tmp_path / "socket"
    refused(f"unix:{path}", "nothing answers", f"gt-dispatcher --unix {path}")


@pytest.mark.parametrize(
    "address",
    [
        "nowhere",
        "127.0.0.1",
        "127.0.0.1:port",
        "127.0.0.1:99999",
        "127.0.0.1:-1",
        "host:",
        ":1",
        "",
    ],
)
def test_no_address(address: str) -> None:
    refused(address, "is no address", "host:port")


@pytest.mark.parametrize(
    "host", ["nosuchhost", "nosuchhost.invalid", "no host", "256.256.256.256", "[::g]", "http://a"]
)
def test_the_host_is_unknown(host: str) -> None:
    refused(f"{host}:1", f'the host "{host}" is unknown (')


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, ["no welcome came"]),
        (b"", ["no welcome came"]),
        (b"GT", ["no welcome came"]),
        (HTTP, ["does not speak GT's protocol"]),
        (b"\0" * 4096, ["does not speak GT's protocol"]),
        (handshake(2, 9, 9, b""), ["does not speak GT's protocol"]),
        (
            refusal(b"this dispatcher speaks 7 to 9, you speak 1: update gt"),
            ["refuses", "update gt"],
        ),
    ],
    ids=["silent", "closes", "half", "http", "zeros", "later welcome", "version"],
)
def test_no_dispatcher_is_there(answer: bytes | None, words: list[str]) -> None:
    with stranger(answer) as address:
        refused(address, *words)


def test_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("ada key-of-ada\n", encoding="utf-8")
    monkeypatch.setenv("GT_TOKEN", "key-of-ada")
    with Cluster(1, arguments=("--token-file", str(tokens))) as cluster:
        cluster.wait_for_workers("ada")
        monkeypatch.delenv("GT_TOKEN")
        refused(cluster.address, "no token", "GT_TOKEN")
        monkeypatch.setenv("GT_TOKEN", "key-of-eve")
        refused(cluster.address, "wrong token", "GT_TOKEN")
        monkeypatch.setenv("GT_TOKEN", "key-of-ada")
        gt.connect(cluster.address)
        assert gt.ones(2).tolist() == [1, 1]
        gt.disconnect()
        assert cluster.log.count(" WARN ") == 2, cluster.log


def test_the_old_session_goes_on() -> None:
    with Cluster(1) as cluster:
        gt.connect(cluster.address)
        value = gt.arange(3)
        refused("nowhere", "is no address")
        assert value.tolist() == [0, 1, 2]
        gt.disconnect()
