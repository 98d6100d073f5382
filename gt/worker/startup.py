"""Start of a worker process: signals, backend, threads, and then the loop in gt._core."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from gt import config
from gt._core import run_on_descriptors, run_on_socket
from gt.worker import memory, warned
from gt.worker.links import Links

if TYPE_CHECKING:
    from torch import Tensor, device

    from gt.worker.backend import Backend
    from gt.worker.reference.values import Array

CALL_SECONDS = 3.0  # limit for a dispatcher's answer
CALL_AGAIN_SECONDS = 0.25
PLACE_AGAIN_SECONDS = 0.05
PLACE_TAKEN = "is there already"  # in the dispatcher's refusal
BACKENDS = ("auto", "pytorch", "torch", "native", "numpy")
# Modules of each backend on the CPU.
MODULES = {
    "pytorch": ("gt.worker.pytorch.kernels", "gt.worker.aten.start"),
    "native": ("gt.worker.native.kernels",),
    "numpy": ("gt.worker.reference.kernels",),
}


class StartError(Exception):
    """A worker cannot start; the message is for the person who starts it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """Options of the command line.

    Args:
        gpu: number among the visible GPUs; None for the one of the worker's index.
        wait_seconds: seconds for which the call is repeated while no dispatcher answers.
        place_seconds: seconds for which it is repeated while the worker of this index, which has
            died, is there for the dispatcher.
    """

    backend: str
    threads: int | None
    index: int | None
    token: str
    control_fd: int | None
    host: str
    port: int | None
    unix: str | None
    rings: bool = True
    tls_ca: str | None = None
    process_groups: str = "auto"
    trusted_networks: Sequence[str] = ()
    look_ahead: int | None = None
    idle_seconds: float = 5.0
    compression: str = "auto"
    links: Links = dataclasses.field(default_factory=Links)
    instruction_log: str | None = None
    shows_executions: bool = False
    aten_rows: str = "off"
    is_verbose: bool = False
    gpu: int | None = None
    wait_seconds: float = 0.0
    place_seconds: float = 0.0


def gpu_of(index: int | None, count: int) -> int:
    """The GPU of a worker: workers take the visible ones in turn.

    All GPUs stay visible to all workers, or a worker could not read its neighbour's memory.

    Args:
        index: index of the worker; None if it has none.
        count: number of visible GPUs.
    """
    return (index or 0) % count


def choose(
    name: str, index: int | None = None, threads: int | None = None
) -> Backend[Tensor] | Backend[Array]:
    """The backend of that name; `auto` is torch, or the native one if torch is not installed."""
    resolved = _available(name)
    if name == "auto" and resolved == "native":
        sys.stderr.write(
            "gt.worker: PyTorch is not installed; this worker computes with GT's own kernels and "
            "numpy (GT_BACKEND=native)\n"
        )
    if resolved == "numpy":
        from gt.worker.reference import kernels as reference

        return reference.backend()
    if resolved == "native":
        from gt.worker.native import kernels as native_backend

        return native_backend.backend(threads)
    import torch

    from gt.worker.pytorch import kernels

    if not torch.cuda.is_available():
        return kernels.backend(torch.device("cpu"))
    return kernels.backend(torch.device("cuda", gpu_of(index, torch.cuda.device_count())))


def load(name: str) -> None:
    """Imports the modules that `choose` and `run` need for a backend on the CPU, and calls none.

    Raises:
        StartError: this machine does not have them.
    """
    resolved = _available(name)
    for module in MODULES.get(resolved, MODULES["pytorch"]):
        importlib.import_module(module)


def _available(name: str) -> str:
    resolved = config.resolved_backend(name)
    if resolved not in {"numpy", "native"} and importlib.util.find_spec("torch") is None:
        raise StartError("the backend pytorch needs PyTorch, which is not installed here")
    return resolved


def run(start: Start) -> int:
    """Serves one dispatcher until it is gone.

    Raises:
        StartError: no dispatcher answers there, or this machine lacks something that was asked for.
    """
    leave_terminal()
    memory.keep()
    warned.install()
    config.use_threads(start.threads)
    config.own_kernels()  # a wrong word is reported before anything runs
    backend = choose(start.backend, start.index if start.gpu is None else start.gpu, start.threads)
    backend = dataclasses.replace(
        backend,
        look_ahead=start.look_ahead,
        idle_seconds=start.idle_seconds,
        compression=start.compression,
        links=start.links,
        instruction_log=start.instruction_log,
        shows_executions=start.shows_executions,
    )
    with backend.guard(), contextlib.ExitStack() as ends:
        if start.process_groups != "off":
            backend = _with_groups(backend, start, ends)
        if backend.name == "pytorch":
            from gt.worker.aten import start as aten

            is_told = start.is_verbose and not start.index
            device = _device(cast("Backend[Tensor]", backend))
            values = aten.Values(device, backend.in_python)
            ends.callback(aten.begin(start.aten_rows, values, is_told=is_told))
        if start.control_fd is not None:
            run_on_descriptors(start.control_fd, backend)
        else:
            _run_on_socket(start, backend)
    return 0


def _run_on_socket(start: Start, backend: Backend[Tensor] | Backend[Array]) -> None:
    _wait_for_dispatcher(start)
    deadline = time.monotonic() + start.place_seconds
    while True:  # ends at the deadline
        try:
            run_on_socket(
                host=start.host,
                port=start.port,
                unix=start.unix,
                index=start.index,
                token=start.token,
                tls_ca=start.tls_ca,
                rings=start.rings,
                backend=backend,
            )
        except ConnectionRefusedError as error:  # noqa: PERF203 - a refusal takes much longer
            if PLACE_TAKEN not in str(error) or time.monotonic() > deadline:
                raise StartError(str(error)) from None
            time.sleep(PLACE_AGAIN_SECONDS)
        else:
            return


def _wait_for_dispatcher(start: Start) -> None:
    """Returns when a dispatcher answers, or the time is over: engines start things in any order."""
    deadline = time.monotonic() + start.wait_seconds
    while start.port is not None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            socket.create_connection((start.host, start.port), CALL_SECONDS).close()
            return
        time.sleep(CALL_AGAIN_SECONDS)


def _with_groups(
    backend: Backend[Tensor] | Backend[Array], start: Start, ends: contextlib.ExitStack
) -> Backend[Tensor] | Backend[Array]:
    """The backend, with process groups for collectives if they are asked for."""
    elsewhere = start.trusted_networks and start.port is not None and _has_groups(backend)
    if start.process_groups == "auto" and not elsewhere:
        return backend
    if not _has_groups(backend):
        raise StartError("process groups need PyTorch's backend")
    from gt.worker import group_backend

    backend = cast("Backend[Tensor]", backend)
    try:
        address = None if start.port is None else group_backend.own_address(start.host, start.port)
        groups = group_backend.GroupBackend(
            start.process_groups, start.trusted_networks, address, _device(backend)
        )
    except ValueError as error:
        raise StartError(str(error)) from None
    except OSError as error:
        raise StartError(f"no way to {start.host}:{start.port}: {error.strerror}") from None
    ends.callback(groups.close)
    return dataclasses.replace(
        backend, collective_backends={**backend.collective_backends, **groups.backends()}
    )


def _has_groups(backend: Backend[Tensor] | Backend[Array]) -> bool:
    return backend.name == "pytorch"


def _device(backend: Backend[Tensor]) -> device:
    return backend.allocate((), backend.dtypes[0]).device


def leave_terminal() -> None:
    """Detaches from the terminal: Ctrl-C interrupts the client's read, and not its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getpid() != os.getsid(0):
        try:
            os.setsid()
        except PermissionError:
            # Already the leader of a process group: a shell started it and keeps job control.
            return
