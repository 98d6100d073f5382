"""`gt doctor`: each thing that a machine may lack, played, is found and has a remedy."""

import importlib.metadata
import importlib.util
import json
import os
import resource
import shutil
import socket
import subprocess
import sys

import pytest

from gt.tools import doctor
from gt.tools.cli import main

pytestmark = pytest.mark.fast


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("GT_", "CUDA_", "CXX")):
            monkeypatch.delenv(name)


def found(check):
    """State and text of what a check found, and what it says to do."""
    return [(one.state, one.text, one.remedy) for one in check()]


def raises(error):
    def fail(*_arguments, **_options):
        raise error

    return fail


def test_this_machine_has_what_gt_needs(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok     GT ")
    assert main(["doctor", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)
    assert {"name", "state", "text", "remedy"} == set(findings[0])
    assert {one["state"] for one in findings} <= {"ok", "note"}
    remedies = [one for one in findings if one["remedy"]]
    assert len(lines) == len(findings) + len(remedies)
    # Each that is no fault of the machine's has something to type.
    assert all(one["remedy"] for one in findings if one["state"] != "ok")


def without(monkeypatch, module):
    spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == module else spec(name)
    )


def test_own_kernels_are_missing(monkeypatch):
    without(monkeypatch, "gt._kernels")
    assert found(doctor.itself)[1][0] == "note"


@pytest.mark.parametrize(
    ("version", "state", "text"),
    [
        (None, "note", "not installed"),
        ("2.10.1+cu126", "wrong", "2.10.1+cu126 is too old"),
        ("2.11.0", "ok", "2.11.0"),
        ("3.0.0.dev1", "ok", "3.0.0.dev1"),
    ],
)
def test_pytorch(version, state, text, monkeypatch):
    missing = raises(importlib.metadata.PackageNotFoundError("torch"))
    monkeypatch.setattr(
        importlib.metadata, "version", (lambda _name: version) if version else missing
    )
    ((its_state, its_text, remedy),) = found(doctor.pytorch)
    assert its_state == state
    assert its_text.startswith(text)
    assert bool(remedy) == (state != "ok")


@pytest.mark.parametrize(
    ("visible", "state", "text"),
    [
        ("", "ok", "none that CUDA_VISIBLE_DEVICES leaves"),
        ("-1", "ok", "none that CUDA_VISIBLE_DEVICES leaves"),
        ("7,8", "wrong", "2 here, of which PyTorch sees"),
    ],
)
def test_gpus(visible, state, text, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    ((its_state, its_text, remedy),) = found(doctor.gpus)
    assert (its_state, bool(remedy)) == (state, state == "wrong")
    assert its_text.startswith(text)


def test_gpus_without_pytorch(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    without(monkeypatch, "torch")
    assert found(doctor.gpus) == [
        ("note", "2, which need PyTorch", "pip install 'gt-tensor[worker]'")
    ]


@pytest.mark.parametrize(
    ("script", "state", "text"),
    [
        (None, "note", "is not found"),
        ("exit 1", "note", "old 4.8: not for C++20"),
        ("exit 0", "ok", "old 4.8"),
    ],
)
def test_compilers(script, state, text, tmp_path, monkeypatch):
    compiler = tmp_path / "c++"
    if script is not None:
        compiler.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo old 4.8 && exit 0\n{script}\n'
        )
        compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    ((its_state, its_text, remedy),) = found(doctor.compilers)
    assert (its_state, bool(remedy)) == (state, state != "ok")
    assert text in its_text


def test_a_cache_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GT_CACHE_DIR", str(tmp_path / "file/cache"))
    ((state, text, remedy),) = found(doctor.cache)
    assert (state, "Not a directory" in text, "GT_CACHE_DIR" in remedy) == ("note", True, True)


def test_shared_memory(monkeypatch):
    usage = shutil.disk_usage("/dev/shm")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(total=2**26))
    ((state, text, remedy),) = found(doctor.memory)
    assert (state, "--shm-size" in remedy) == ("note", True)
    assert "is small" in text
    monkeypatch.setattr(os, "memfd_create", raises(PermissionError(1, "Operation not permitted")))
    ((state, text, remedy),) = found(doctor.memory)
    assert (state, text) == ("wrong", "memfd_create: Operation not permitted")


@pytest.mark.parametrize(
    ("most", "state"),
    [(1024, "note"), (4096, "ok"), (resource.RLIM_INFINITY, "ok")],
)
def test_limits(most, state, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (most, most))
    ((its_state, _, remedy),) = found(doctor.limits)
    assert (its_state, bool(remedy)) == (state, state != "ok")


def test_ports(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setattr("gt.tools.top.ADDRESS", address)
        monkeypatch.setenv("GT_ADDRESS", address)
        loopback, port, dispatcher = found(doctor.ports)
        assert loopback[0] == "ok"
        assert (port[0], address in port[2]) == ("note", True)
        assert (dispatcher[0], address in dispatcher[1]) == ("ok", True)
    (_, dispatcher) = found(doctor.ports)
    assert (dispatcher[0], "nothing answers" in dispatcher[1]) == ("wrong", True)
    monkeypatch.setattr(socket, "create_server", raises(PermissionError(1, "not permitted")))
    ((state, text, _),) = found(doctor.ports)
    assert (state, "not permitted" in text) == ("wrong", True)


@pytest.mark.parametrize("address", ["nowhere", "host:port", "127.0.0.1:"])
def test_an_address_that_is_none(address, monkeypatch):
    monkeypatch.setenv("GT_ADDRESS", address)
    assert [one[0] for one in found(doctor.dispatcher)] == ["wrong"]


@pytest.mark.parametrize(
    ("address", "text"),
    [("10.0.0.7", None), ("127.0.1.1", "is 127.0.1.1"), (None, "is unknown")],
)
def test_the_name_by_which_others_call(address, text, monkeypatch):
    answer = raises(socket.gaierror(8, "unknown")) if address is None else lambda _name: address
    monkeypatch.setattr(socket, "gethostbyname", answer)
    names = {one.name: one for one in doctor.links()}
    assert ("host name" in names) == (text is not None)
    if text is not None:
        assert text in names["host name"].text
        assert "--host ADDRESS" in names["host name"].remedy


def test_links_and_buffers(tmp_path, monkeypatch):
    for name, state, speed in [("eth0", "up", "25000"), ("ib0", "up", ""), ("eth1", "down", "1")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "operstate").write_text(f"{state}\n")
        (tmp_path / name / "speed").write_text(f"{speed}\n")
    (tmp_path / "rmem_max").write_text("212992\n")
    (tmp_path / "wmem_max").write_text(f"{2**24}\n")
    monkeypatch.setattr(doctor, "NET", tmp_path)
    monkeypatch.setattr(doctor, "CORE", tmp_path)
    findings = {one.name: one for one in doctor.links()}
    assert findings["links"].text == "eth0 25000 Mb/s, ib0 of unknown speed"
    assert findings["socket buffers"].remedy == "sysctl -w net.core.rmem_max=16777216"


def test_engines_and_their_programs(monkeypatch):
    here = {"torchrun", "ssh"}
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name in here else None)
    without(monkeypatch, "ray")
    ready, missing = (text for _, text, _ in found(doctor.engines))
    assert ready == "local, ssh, torchrun, elsewhere"
    assert "mpi (mpirun)" in missing
    assert "ray (ray)" in missing
    assert "slurm (sbatch, squeue, scontrol, scancel)" in missing


def test_variables_that_mean_nothing_are_wrong(monkeypatch, capsys):
    monkeypatch.setenv("GT_KERNELS", "maybe")
    monkeypatch.setenv("GT_WORKER", "2")
    assert [one.state for one in doctor.settings()] == ["wrong", "wrong"]
    assert main(["doctor"]) == 1
    assert "GT_KERNELS=maybe: expected one of auto, off, on" in capsys.readouterr().out


def test_it_ends_quietly_where_nobody_reads():
    words = [sys.executable, "-m", "gt", "doctor"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0
