"""TLS between clients, workers and the dispatcher: what it hides, and how each mistake is told."""

import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import wire_client
from cluster import Cluster, first_line, until
from cutting_proxy import CuttingProxy

import gt
from gt import _core
from gt.tools.cli import main

WIRE_VERSION = 1
HOSTS = ["localhost", "127.0.0.1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates for this host."""
    path = tmp_path_factory.mktemp("certificates")
    assert _core.write_certificates(str(path), HOSTS, 1)
    return path


def tls_options(folder: Path) -> tuple[str, ...]:
    return ("--tls-cert", str(folder / "server.pem"), "--tls-key", str(folder / "server-key.pem"))


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """The authority that clients and workers of a test know."""
    path = folder / "ca.pem"
    monkeypatch.setenv("GT_TLS_CA", str(path))
    return path


@pytest.fixture
def encrypted(authority: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A dispatcher with a certificate, and a worker that stays on the network."""
    assert authority.exists()
    monkeypatch.setenv("GT_NO_RING", "1")
    with Cluster(0, arguments=tls_options(authority.parent)) as running:
        running.command.append("--tcp")
        running.add_worker()
        running.wait_for_workers()
        yield running
        gt.disconnect()


def refused(address: str) -> str:
    """Text of the error of a connection that fails."""
    with pytest.raises(gt.errors.ConnectionLost) as error:
        gt.connect(address)
    return str(error.value)


def test_values_are_the_same_under_tls(encrypted: Cluster) -> None:
    gt.connect(encrypted.address, workers=1)
    values = np.arange(300_000, dtype=np.float32).reshape(3, -1)
    x = gt.from_numpy(values)  # 1.2 MB: several frames, and many records of TLS
    assert np.array_equal((x * 2 + 1).numpy(), values * 2 + 1)
    y = gt.ones(4)
    for _ in range(2000):
        y = y + 1
    assert y.tolist() == [2001.0] * 4
    assert "is connected by TLS" in encrypted.log
    assert "is connected by TCP" not in encrypted.log


def test_neither_token_nor_values_nor_names_are_seen_on_the_network(
    folder: Path, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert authority.exists()
    secret = "5ecret-of-anna-0123456789"
    (tmp_path / "tokens").write_text(f"anna {secret}\n")
    monkeypatch.setenv("GT_TOKEN", secret)
    monkeypatch.setenv("GT_NO_RING", "1")
    marks = (secret.encode(), b"hidden_signal", np.full(64, 1234.5, np.float32).tobytes())
    for options in (tls_options(folder), ()):
        if not options:
            monkeypatch.delenv("GT_TLS_CA")
        seen = bytearray()
        arguments = ("--token-file", str(tmp_path / "tokens"), *options)
        with Cluster(1, arguments=arguments) as running:
            running.wait_for_workers("anna")
            with CuttingProxy(("127.0.0.1", int(running.port)), seen=seen) as proxy:
                gt.connect(proxy.address, workers=1)
                with gt.signal.context("hidden_signal"):
                    x = gt.from_numpy(np.full(64, 1234.5, np.float32))
                    assert (x + 0).numpy().sum() == 64 * 1234.5
                gt.disconnect()
        # In clear all of it is there, so this test would see it.
        assert [mark in seen for mark in marks] == [not options] * len(marks), options


def test_a_broken_connection_is_resumed_under_tls(encrypted: Cluster) -> None:
    with CuttingProxy(("127.0.0.1", int(encrypted.port))) as proxy:
        gt.connect(proxy.address, workers=1)
        x = gt.zeros(1000)
        for step in range(30):
            x = x + 1
            if step % 10 == 5:
                proxy.cut()
        assert x.sum().item() == 30_000.0
        assert proxy.connections > 1
        gt.disconnect()


def test_a_workers_broken_connection_is_resumed_under_tls(
    authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GT_NO_RING", "1")
    options = tls_options(authority.parent)
    with (
        Cluster(0, arguments=options) as running,
        CuttingProxy(("127.0.0.1", int(running.port))) as proxy,
    ):
        port = proxy.address.rsplit(":", 1)[1]
        running.command[running.command.index("-p") + 1] = port
        running.command.append("--tcp")
        for _ in range(2):
            running.add_worker()
        running.wait_for_workers()
        gt.connect(running.address, workers=2)
        array = np.arange(180_000, dtype=np.float64).reshape(600, 300)
        kept = gt.distribute(gt.from_numpy(array), dim=0)
        for drop in range(3):
            total = kept
            for _ in range(100):
                total = total + 1
            gram = kept.T @ kept  # summed over the workers, beside the link to the dispatcher
            proxy.cut()  # with much of that in flight
            np.testing.assert_array_equal(total.numpy(), array + 100)
            np.testing.assert_allclose(gram.numpy(), array.T @ array, rtol=1e-9)
            until(lambda seen=drop: running.log.count("is resumed") >= 2 * (seen + 1))
        gt.disconnect()


def test_a_changed_byte_does_no_harm(encrypted: Cluster) -> None:
    altered = 0

    def alter(data: bytes) -> bytes:
        nonlocal altered
        if len(data) > 100_000 // 4 and not altered:
            altered += 1
            return data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]
        return data

    with CuttingProxy(("127.0.0.1", int(encrypted.port)), alter) as proxy:
        gt.connect(proxy.address, workers=1)
        values = np.random.default_rng(0).random(200_000, np.float32)
        assert np.array_equal(gt.from_numpy(values).numpy(), values)
        assert altered == 1
        gt.disconnect()


def test_on_the_dispatchers_host_rings_take_over(authority: Path) -> None:
    with Cluster(1, arguments=tls_options(authority.parent)) as running:
        running.wait_for_workers()
        gt.connect(running.address, workers=1)
        assert (gt.ones(3) + 1).tolist() == [2.0] * 3
        assert running.log.count("is connected by rings") == 2
        gt.disconnect()


def test_a_client_in_clear_is_told_what_to_set(
    encrypted: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GT_TLS_CA")
    assert "takes TLS only: set GT_TLS_CA to" in refused(encrypted.address)


def test_a_worker_in_clear_is_told_what_to_set(
    encrypted: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GT_TLS_CA")
    worker = encrypted.add_worker()
    encrypted.workers.remove(worker)
    assert worker.wait(20) != 0
    until(lambda: "takes TLS only" in encrypted.log)


def test_a_dispatcher_in_clear_is_told_of(authority: Path) -> None:
    assert authority.exists()
    with Cluster(0) as running:
        text = refused(running.address)
        assert "start it with --tls-cert and --tls-key, or unset GT_TLS_CA" in text
        until(lambda: "a TLS connection, for which this dispatcher has no cert" in running.log)


def test_the_certificate_of_another_authority_is_refused(
    encrypted: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _core.write_certificates(str(tmp_path), HOSTS, 1)
    monkeypatch.setenv("GT_TLS_CA", str(tmp_path / "ca.pem"))
    text = refused(encrypted.address)
    assert f"is not signed by the authority in {tmp_path / 'ca.pem'} (GT_TLS_CA)" in text


@pytest.mark.parametrize(
    ("hosts", "days", "words"),
    [
        (["localhost"], 1, 'is not for "127.0.0.1": on its host write one that is (`gt cert DIR'),
        (HOSTS, 0, "has expired: on its host write a new one (`gt cert DIR`"),
    ],
)
def test_a_certificate_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: list[str], days: int, words: str
) -> None:
    _core.write_certificates(str(tmp_path), hosts, days)
    monkeypatch.setenv("GT_TLS_CA", str(tmp_path / "ca.pem"))
    with Cluster(0, arguments=tls_options(tmp_path)) as running:
        assert words in refused(running.address)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "GT_TLS_CA: cannot read the authority's"), ("hello", "holds no certificate of an")],
)
def test_a_file_that_is_no_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, words: str
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("GT_TLS_CA", str(path))
    assert words in refused("127.0.0.1:1")


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    _core.write_certificates(str(tmp_path), HOSTS, 1)
    (tmp_path / "server-key.pem").chmod(0o644)
    command = [sys.executable, "-m", "gt.server", "-p", "0", *tls_options(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "server-key.pem can be read by others: chmod 600 it" in ended.stderr


def test_gt_cert_writes_an_authority_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "tls"
    assert main(["cert", str(folder), "--host", "head.example"]) == 0
    printed = capsys.readouterr().out
    assert "head.example" in printed
    assert socket.gethostname() in printed
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {
        "ca.pem": 0o644,
        "ca-key.pem": 0o600,
        "server.pem": 0o644,
        "server-key.pem": 0o600,
    }
    first = (folder / "ca.pem").read_bytes()
    assert main(["cert", str(folder)]) == 0
    assert "ca-key.pem" not in capsys.readouterr().out
    assert (folder / "ca.pem").read_bytes() == first
    (folder / "ca.pem").unlink()
    assert main(["cert", str(folder)]) == 1
    assert "holds ca-key.pem but not ca.pem" in capsys.readouterr().err


def new_token(name: str) -> tuple[str, str]:
    """A token and its line, as `gt token` makes them."""
    token, line = _core.new_token(name)
    assert line.startswith(f"{name} $argon2id$v=19$m=19456,t=2,p=1$")
    assert token not in line
    return token, line


def replace(path: Path, text: str) -> None:
    """Put another file in its place, as editors do."""
    following = path.with_suffix(".next")
    following.write_text(text)
    following.replace(path)


def test_gt_token_prints_a_line_for_the_file_and_the_token_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["token", "anna"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("anna $argon2id$")
    assert printed.err.startswith("GT_TOKEN=anna.")
    assert main(["token", "two words"]) == 1
    assert "'two words'" in capsys.readouterr().err.replace('"', "'")


def test_hashed_tokens_admit_their_user_and_follow_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / "tokens"
    (anna, annas), (ben, bens) = new_token("anna"), new_token("ben")
    host = "host 0123456789abcdef"
    replace(tokens, f"{annas}\n{host}\n")
    monkeypatch.setenv("GT_TOKEN", "0123456789abcdef")
    with Cluster(1, arguments=("--token-file", str(tokens))) as running:
        running.wait_for_workers("host")
        assert "1 token stands there in clear; `gt token NAME`" in running.log
        for wrong in ("anna.0", "anna", f"{anna}0", f"ben.{anna[5:]}", annas.split()[1]):
            monkeypatch.setenv("GT_TOKEN", wrong)
            assert "wrong token: set GT_TOKEN" in refused(running.address)
        code = "x = gt.ones(3)\nprint(x.sum().item(), flush=True)\ninput()\nprint(x.tolist())"
        client = running.client(code, GT_TOKEN=anna)
        assert first_line(client) == "3.0\n"
        assert '("anna") is connected' in running.log

        # A file with a mistake is not taken; one without anna ends her client, and admits ben.
        replace(tokens, f"{annas}\n{host}\nben\n")
        until(lambda: ":3: expected `name token`; the tokens from before stay" in running.log)
        monkeypatch.setenv("GT_TOKEN", ben)
        assert "wrong token" in refused(running.address)
        replace(tokens, f"{bens}\n{host}\n")
        until(lambda: "2 lines; 1 connections end whose line is gone" in running.log)
        _, errors = client.communicate("\n", timeout=20)
        assert "ConnectionLost" in errors
        monkeypatch.setenv("GT_TOKEN", anna)
        assert "wrong token" in refused(running.address)
        monkeypatch.setenv("GT_TOKEN", ben)
        gt.connect(running.address, workers=1)  # the worker's line is still there
        assert gt.ones(2).tolist() == [1.0, 1.0]
        gt.disconnect()
        for secret in (anna, ben, "0123456789abcdef"):
            assert secret not in running.log


def test_many_wrong_tokens_keep_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anna, line = new_token("anna")
    (tmp_path / "tokens").write_text(f"{line}\n")
    monkeypatch.setenv("GT_TOKEN", anna)
    with Cluster(1, arguments=("--token-file", str(tmp_path / "tokens"))) as running:
        running.wait_for_workers("anna")
        host, port = running.address.rsplit(":", 1)
        strangers = []
        for number in range(200):
            # Each names a user, so that a hash would have to be computed.
            token = f"anna.{number:048x}".encode()
            stranger = socket.create_connection((host, int(port)), 20)
            stranger.sendall(handshake_hello(token))
            strangers.append(stranger)
        gt.connect(running.address, workers=1)  # known since the worker came
        assert gt.ones(2).tolist() == [1.0, 1.0]
        gt.disconnect()
        answers = [stranger.recv(1024) for stranger in strangers]
        for stranger in strangers:
            stranger.close()
        busy = sum(b"too many tokens are being checked" in answer for answer in answers)
        wrong = sum(b"wrong token" in answer for answer in answers)
        assert busy + wrong == len(strangers)
        assert busy > 0
        assert wrong > 0


def handshake_hello(token: bytes) -> bytes:
    """A client's hello as docs/wire.md has it."""
    body = struct.pack("<BBI", 0, 0, 0) + struct.pack("<H", len(token)) + token
    body += struct.pack("<H", 1) + b"x"
    version = WIRE_VERSION
    return struct.pack("<4sHBBHH", b"GT\x01\n", 12 + len(body), 1, 0, version, version) + body


def test_the_audit_log_says_who_came_and_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, log = tmp_path / "tokens", tmp_path / "audit.log"
    anna, line = new_token("anna")
    replace(tokens, f"{line}\n")
    (tmp_path / "policy.yaml").write_text("{}\n")
    monkeypatch.setenv("GT_TOKEN", anna)
    arguments = ("--token-file", str(tokens), "--audit-log", str(log))
    arguments += ("--policy", str(tmp_path / "policy.yaml"))
    with Cluster(1, arguments=arguments) as running:
        running.wait_for_workers("anna")
        monkeypatch.setenv("GT_TOKEN", "another")
        refused(running.address)
        monkeypatch.setenv("GT_TOKEN", anna)
        gt.connect(running.address, session="long")
        gt.disconnect()
        gt.connect(running.address, session="long")
        gt.disconnect()
        until(lambda: log.read_text().count("event=session-detached") == 2)
        assert main(["kill", "long", running.address]) == 0
        replace(tmp_path / "policy.yaml", "default: {weight: 2}\n")
        replace(tokens, f"{line}\n# changed\n")
        until(lambda: "event=policy-reloaded" in log.read_text())
        until(lambda: "event=tokens-reloaded" in log.read_text())
        gt.disconnect()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    lines = log.read_text().splitlines()
    events = [each.split()[1].removeprefix("event=") for each in lines]
    for event in (
        "started",
        "admitted",
        "refused",
        "session-opened",
        "session-attached",
        "session-detached",
        "session-killed",
        "session-ended",
        "left",
        "stopping",
    ):
        assert event in events, (event, lines)
    admitted = next(each for each in lines if "event=admitted worker=0 from=127.0.0.1:" in each)
    assert 'user="anna" name="worker ' in admitted
    refusal = next(each for each in lines if "event=refused" in each)
    assert 'from="127.0.0.1:' in refusal
    assert "wrong token" in refusal
    assert any(
        "event=session-attached session=" in each and 'name="long"' in each for each in lines
    )
    assert anna not in log.read_text()
    assert all(each[:4].isdigit() and each.split()[0].endswith("Z") for each in lines)


@pytest.mark.parametrize("backend", ["numpy", "native", "pytorch"])
def test_memory_of_another_user_is_never_read_before_it_was_written(backend: str) -> None:
    if backend == "pytorch":
        pytest.importorskip("torch")
    with Cluster(1, backend=backend) as running:
        running.wait_for_workers()
        address = ("127.0.0.1", int(running.port))
        for count in (16, 1000, 20_000):
            with wire_client.Client(address) as anna:
                held = [anna.upload([1234.5] * count, (count,)) for _ in range(8)]
                assert anna.read(held[-1]) == [1234.5] * count
                anna.free(*held)
                assert anna.read(anna.upload([1.0], (1,))) == [1.0]
            with wire_client.Client(address) as ben:
                # The rest of the bytes never comes.
                parts = [ben.upload([7.0], (count,)) for _ in range(8)]
                for part in parts:
                    assert ben.read(part) == [7.0] + [0.0] * (count - 1)


def test_a_handle_of_another_session_is_refused() -> None:
    with Cluster(1) as running:
        running.wait_for_workers()
        address = ("127.0.0.1", int(running.port))
        with wire_client.Client(address) as anna, wire_client.Client(address) as ben:
            for _ in range(5):
                secret = anna.upload([1234.5], (1,))
            assert anna.read(secret) == [1234.5]
            assert ben.read(ben.upload([1.0], (1,))) == [1.0]
            ben._shapes[secret] = (1,)  # a hostile client knows every number
            with pytest.raises(wire_client.Closed, match=f"slot {secret}"):
                ben.read(secret)
            assert anna.read(secret) == [1234.5]
