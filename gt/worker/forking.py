"""Preconditions for forking workers: their modules are imported, and no thread runs."""

from __future__ import annotations

import gc
import pathlib
import sys
import threading

from gt import config
from gt.worker import startup


def is_ready(backend: str, threads: int | None) -> bool:
    """Imports the workers' modules; False, with a message, if a thread runs then.

    A pool of threads does not survive a fork, and neither do locks that a thread holds.

    Args:
        backend: backend of the workers.
        threads: threads of one worker's large operation.

    Raises:
        StartError: this machine lacks something that was asked for.
    """
    startup.leave_terminal()
    config.use_threads(threads)
    before = _thread_count()
    startup.load(backend)
    if threading.active_count() > 1 or _thread_count() > before:
        sys.stderr.write(
            "gt.worker: a thread runs where workers would be forked, so each imports by itself\n"
        )
        return False
    gc.collect()
    gc.freeze()  # a collection in a worker would write to the shared pages
    return True


def _thread_count() -> int:
    """Number of threads of the process, with those of libraries."""
    return len(list(pathlib.Path("/proc/self/task").iterdir()))
