"""A dispatcher and workers as processes, by the commands that a person types."""

import os
import subprocess
import sys
from types import TracebackType

WAIT_SECONDS = 20.0


class Cluster:
    """`python -m gt.server -p 0` and some `python -m gt.worker`; all end with the `with` block."""

    def __init__(self, workers: int = 1, *, backend: str = "numpy") -> None:
        server = [sys.executable, "-m", "gt.server", "-p", "0"]
        self.server = subprocess.Popen(server, stdout=subprocess.PIPE, text=True)
        self.address = self.server.stdout.readline().removeprefix("listening on ").strip()
        host, self.port = self.address.rsplit(":", 1)
        self.command = [sys.executable, "-m", "gt.worker", "--host", host, "-p", self.port]
        self.workers = [
            subprocess.Popen([*self.command, "--backend", backend]) for _ in range(workers)
        ]

    def run(self, code: str, **settings: str) -> str:
        """What a client program prints that begins connected to the cluster."""
        done = subprocess.run(
            [sys.executable, "-c", f"import gt\ngt.connect({self.address!r})\n{code}"],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in (*self.workers, self.server):
            process.terminate()
        for process in (*self.workers, self.server):
            process.communicate(timeout=WAIT_SECONDS)
