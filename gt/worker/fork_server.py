"""One process that imports what workers need and forks each of them, so that many start like one.

They share the memory of what is imported. The process itself computes nothing and starts no thread.
It ends with its socket, the workers with their own.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys

from gt._core import ForkRequest, ForkRequests
from gt.worker import forking, startup


def run(start: startup.Start, descriptor: int) -> int:
    """Forks until the other end of the socket is gone; in each child, serves as that worker.

    Args:
        start: the workers', but for index and control socket, which come with each request.
        descriptor: of the socket by which the dispatcher asks.

    Returns: the exit status.

    Raises:
        StartError: this machine has not what was asked for.
    """
    is_ready = forking.is_ready(start.backend, start.threads)
    requests = ForkRequests(descriptor)
    if not is_ready:
        _start(requests, start)
        return 0
    request = _forked(requests)
    if request is None:
        return 0
    requests.tell(request, os.getpid())
    del requests  # it ends with the process that forks
    worker = dataclasses.replace(start, index=request.index, control_fd=request.control_fd)
    return startup.run(worker)


def _forked(requests: ForkRequests) -> ForkRequest | None:
    """Forks a worker for each request; returns it in the child, and None after the last one."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries workers that have ended
    while (request := requests.receive()) is not None:
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return request
        os.close(request.control_fd)
    return None


def _start(requests: ForkRequests, start: startup.Start) -> None:
    """Starts a worker for each request by itself."""
    command = [sys.executable, "-m", "gt.worker", "--backend", start.backend]
    if start.threads is not None:
        command += ["--threads", str(start.threads)]
    children = []
    while (request := requests.receive()) is not None:
        own = ["--id", str(request.index), "--control-fd", str(request.control_fd)]
        child = subprocess.Popen(command + own, pass_fds=[request.control_fd])
        children.append(child)  # unburied until the end of this process, so that its number stays
        os.close(request.control_fd)
        requests.tell(request, child.pid)
