"""Finds the worker processes of a program: forked workers are not its direct children."""

from __future__ import annotations

from pathlib import Path


def children(parent: int | str = "self") -> list[int]:
    """The processes of GT's that one has started and that still run, the oldest first."""
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    started = [word for task in tasks for word in task.read_text().split()]
    return [int(child) for child in started if b"gt.worker" in command(child)]


def worker_processes(parent: int | str = "self") -> list[int]:
    """The workers of a program: those below it that have none below them."""
    return [worker for child in children(parent) for worker in worker_processes(child) or [child]]


def command(process: int | str) -> bytes:
    """Its command line; of one that has ended, nothing."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
