"""Compiled programs in the user's cache folder, and the processes that compile them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from gt import config
from gt._core import __version__

# Most compiled programs that are kept; the one that was used longest ago goes first.
KEPT_MAX = 256
# Most programs that wait for the compiler.
WAITING_MAX = 64
FOLDER = "compiled"
# Process that compiles a program, and its priority: the lowest.
COMMAND = (sys.executable, "-m", "gt.worker.compiled.build")
_NICE = 19


@dataclasses.dataclass(frozen=True)
class Form:
    """A tensor without its elements."""

    dtype: str
    size: tuple[int, ...]
    strides: tuple[int, ...]
    device: str

    @classmethod
    def of(cls, tensor: Tensor) -> Form:
        """The form of a tensor."""
        word = str(tensor.dtype).removeprefix("torch.")
        return cls(word, tuple(tensor.shape), tensor.stride(), tensor.device.type)


@dataclasses.dataclass(frozen=True)
class Order:
    """A program that is to be compiled for operands of these forms."""

    data: bytes
    forms: tuple[Form, ...]
    threads: int

    def key(self) -> str:
        """Name of what is compiled: a digest of everything that decides on it."""
        facts = [
            torch.__version__, torch.version.git_version, torch.backends.cpu.get_cpu_capability(),
            __version__, self.threads, [dataclasses.astuple(form) for form in self.forms],
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(facts).encode() + self.data).hexdigest()[:32]

    def text(self) -> str:
        """The order as one line, for the process that compiles."""
        forms = [dataclasses.astuple(form) for form in self.forms]
        return json.dumps({"data": self.data.hex(), "forms": forms, "threads": self.threads})

    @classmethod
    def read(cls, line: str) -> Order:
        """The order of such a line."""
        said = json.loads(line)
        forms = tuple(Form(word, tuple(s), tuple(t), d) for word, s, t, d in said["forms"])
        return cls(bytes.fromhex(said["data"]), forms, said["threads"])


def folder() -> pathlib.Path:
    """The folder of compiled programs, of this user alone."""
    path = config.cache_folder() / FOLDER
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def kept(key: str) -> pathlib.Path | None:
    """The compiled program of this key, if it is there and unchanged since it was written."""
    path = folder() / f"{key}.pt2"
    try:
        stated = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        is_ours = path.stat().st_uid == os.getuid() == path.parent.stat().st_uid
        if not is_ours or stated != facts(path.read_bytes()):
            return None
        os.utime(path)
    except (OSError, ValueError):
        return None
    return path


def facts(data: bytes) -> dict[str, object]:
    """Facts about a compiled program's file, which are written beside it."""
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def shrink() -> None:
    """Removes the programs that were used longest ago, beyond `KEPT_MAX`."""
    with contextlib.suppress(OSError):
        paths = sorted(folder().glob("*.pt2"), key=lambda path: path.stat().st_mtime)
        for path in paths[:-KEPT_MAX]:
            path.with_suffix(".json").unlink(missing_ok=True)
            path.with_suffix(".lock").unlink(missing_ok=True)
            path.unlink(missing_ok=True)


class Compilations:
    """Programs that are being compiled: one at a time, in a process of lowest priority each.

    A process ends with this one: it watches its input, a pipe from here.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Order] = {}
        self._running: tuple[str, subprocess.Popen[str]] | None = None
        self._reasons: dict[str, str] = {}

    def state(self, order: Order) -> tuple[str, str]:
        """`ready`, `compiling` or `refused`, with the reason; begins where nothing has begun."""
        key = order.key()
        self._look()
        if key in self._reasons:
            return "refused", self._reasons[key]
        if self._running is not None and self._running[0] == key:
            return "compiling", ""
        if kept(key) is not None:
            return "ready", ""
        # Whoever finds no place here asks again.
        if len(self._waiting) < WAITING_MAX:
            self._waiting.setdefault(key, order)
        self._start()
        return "compiling", ""

    def _look(self) -> None:
        if self._running is None:
            return
        key, process = self._running
        if process.poll() is None:
            return
        assert process.stdout is not None
        assert process.stdin is not None
        with process.stdout:
            said = process.stdout.read().strip()
        with contextlib.suppress(OSError):
            process.stdin.close()
        self._running = None
        if process.returncode != 0:
            self._reasons[key] = said.splitlines()[-1] if said else "the process has ended"
        self._start()

    def _start(self) -> None:
        if self._running is not None or not self._waiting:
            return
        key, order = next(iter(self._waiting.items()))
        del self._waiting[key]
        # GT's own kernels are no operators that it could compile.
        process = subprocess.Popen(
            [*COMMAND, str(folder()), key, str(_NICE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env=config.with_settings(GT_KERNELS="off"),
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(order.text() + "\n")
            process.stdin.flush()
        self._running = (key, process)


def example(form: Form) -> Tensor:
    """A tensor of this form."""
    dtype: torch.dtype = getattr(torch, form.dtype)
    made = torch.empty_strided(form.size, form.strides, dtype=dtype, device=form.device)
    return made.zero_()


def fitted(operands: Sequence[Tensor], forms: Sequence[Form]) -> list[Tensor] | None:
    """The operands with the strides that a program was compiled for; None where it was compiled for
    other shapes or dtypes, which its code does not check.
    """
    if len(operands) != len(forms):
        return None
    for one, form in zip(operands, forms, strict=True):
        if one.shape != form.size or one.dtype != getattr(torch, form.dtype):
            return None
    return [
        one if one.stride() == form.strides else example(form).copy_(one)
        for one, form in zip(operands, forms, strict=True)
    ]
