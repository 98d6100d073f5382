"""How a worker process begins: signals, backend, threads, and then the loop in gt._core."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import signal
import sys
from typing import TYPE_CHECKING

from gt import _core

if TYPE_CHECKING:
    from gt.worker.backend import Backend

BACKENDS = ("pytorch", "torch", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """What the command line says."""

    backend: str | None
    threads: int | None
    index: int | None
    control_fd: int | None
    host: str
    port: int | None
    unix: str | None


def choose(name: str | None) -> Backend:
    """The backend of that name; without one torch, or numpy where there is no torch."""
    if name is None and importlib.util.find_spec("torch") is None:
        print(
            "gt.worker: PyTorch is not installed; this worker computes with numpy, slowly",
            file=sys.stderr,
        )
        name = "numpy"
    if name == "numpy":
        from gt.worker import reference  # noqa: PLC0415  torch and numpy are alternatives

        return reference.backend()
    from gt.worker import kernels  # noqa: PLC0415  as above

    return kernels.backend()


def run(start: Start) -> int:
    """Serves one dispatcher until it is gone."""
    _leave_terminal()
    backend = choose(start.backend)
    if start.threads is not None:
        backend.set_threads(start.threads)
    with backend.guard():
        if start.control_fd is not None:
            _core.run_on_descriptors(start.control_fd, backend)
        else:
            _core.run_on_socket(start.host, start.port, start.unix, start.index, backend)
    return 0


def _leave_terminal() -> None:
    """Ctrl-C is the client's: it interrupts a read, not the workers that compute for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getpid() != os.getsid(0):
        try:
            os.setsid()
        except PermissionError:
            # The leader of a process group already: started from a shell, which keeps its job control.
            return
