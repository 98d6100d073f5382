"""Workers of a dispatcher under `gt worker --supervise`, for the tests that kill them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import Cluster, until
from worker_processes import command

END_SECONDS = 50.0


class Supervised:
    """`gt worker --supervise` for a dispatcher: the process that supervises, and its workers."""

    def __init__(self, cluster: Cluster, *words: str) -> None:
        self.process = subprocess.Popen(
            [*cluster.command, "--supervise", *words], stderr=subprocess.PIPE, text=True
        )

    def workers(self) -> list[int]:
        """Its worker processes."""
        pid = self.process.pid
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(word) for word in text.split() if b"gt.worker" in command(word)]

    def lines_to(self, pattern: str) -> list[str]:
        """Its lines of standard error up to one that matches."""
        lines = []
        while not lines or not re.search(pattern, lines[-1]):
            lines.append(self.process.stderr.readline().rstrip())
            assert self.process.poll() is None, lines
        return lines


@contextmanager
def supervised(
    count: int, *words: str, arguments: tuple[str, ...] = ()
) -> Iterator[tuple[Cluster, Supervised]]:
    with Cluster(0, arguments=arguments) as cluster:
        parent = Supervised(cluster, "--count", str(count), *words)
        try:
            until(lambda: cluster.log.count("is connected by") == count)
            yield cluster, parent
        finally:
            parent.process.terminate()
            parent.process.communicate(timeout=END_SECONDS)
