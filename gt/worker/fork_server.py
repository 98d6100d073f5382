"""A process that imports the workers' modules and forks each worker: many start like one.

The workers share the memory of the imports. The process itself computes nothing and starts no
thread. It ends with its socket, and each worker with its own.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

from gt._core import ForkRequest, ForkRequests
from gt.worker import forking, startup


def run(start: startup.Start, descriptor: int) -> int:
    """Forks until the other end of the socket is gone; in each child, serves as that worker.

    Args:
        start: settings of the workers without index and control socket, which come with each
            request.
        descriptor: socket by which the dispatcher asks.

    Returns: the exit status.

    Raises:
        StartError: this machine lacks something that was asked for.
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
    del requests  # the socket ends with the forking process
    worker = dataclasses.replace(start, index=request.index, control_fd=request.control_fd)
    return startup.run(worker)


def _forked(requests: ForkRequests) -> ForkRequest | None:
    """Forks a worker for each request; returns it in the child, and None after the last one."""
    while (request := requests.receive()) is not None:
        child = os.fork()
        if not child:
            return request
        requests.watch(request, child)  # reaps it, and reports how it has ended
        os.close(request.control_fd)
    return None


def _start(requests: ForkRequests, start: startup.Start) -> None:
    """Starts a new process for each request, without forking."""
    command = [sys.executable, "-m", "gt.worker", "--backend", start.backend]
    if start.threads is not None:
        command += ["--threads", str(start.threads)]
    while (request := requests.receive()) is not None:
        own = ["--id", str(request.index), "--control-fd", str(request.control_fd)]
        child = subprocess.Popen(command + own, pass_fds=[request.control_fd])
        os.close(request.control_fd)
        requests.tell(request, child.pid)
        requests.watch(request, child.pid)  # reaps it, so Popen must not
        child.returncode = 0
