"""Finds the worker processes of a program: forked workers are not its direct children."""

from __future__ import annotations

from pathlib import Path


def children(parent: int | str = "self") -> list[int]:
    """The processes of GT's that one has started and that still run, the oldest first."""
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    started = [word for task in tasks for word in task.read_text().split()]
    return [int(child) for child in started if b"\0gt.worker\0" in command(child)]


def worker_processes() -> list[int]:
    """The workers of this program: its children, or those that a child forks for it.

    A worker's own child is none: a compiler has the worker's command line until it is executed.
    """
    return [worker for child in children() for worker in _forked(child) or [child]]


def _forked(process: int) -> list[int]:
    return children(process) if b"\0--fork-fd\0" in command(process) else []


def command(process: int | str) -> bytes:
    """Its command line; of one that has ended, nothing."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
