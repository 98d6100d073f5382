"""NetworkWorker: a worker of this machine that joins an orchestrator, and rejoins after
failures.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time

from gt import config as settings
from gt.errors import ConnectionLost
from gt.guava import console, links
from gt.guava.config import DistributedConfig

__all__ = ["MISTAKEN", "NetworkWorker"]

WAIT_SECONDS, WAIT_SECONDS_MAX = 0.1, 30.0  # doubles after each attempt
DIAL_SECONDS = 5.0
MISTAKEN = 2  # exit status of a worker with an invalid command line


class NetworkWorker:
    """One worker, on one GPU of this machine.

    Args:
        gpu_id: index among the GPUs that CUDA_VISIBLE_DEVICES allows; without GPUs the CPU is used.
        config: the settings; by default those of the environment.
        master_ip: address of the orchestrator; by default that of `config`.
        master_port: port of the orchestrator; by default that of `config`.
    """

    def __init__(
        self,
        gpu_id: int = 0,
        config: DistributedConfig | None = None,
        master_ip: str | None = None,
        master_port: int | None = None,
    ) -> None:
        self.gpu_id = gpu_id
        self.config = DistributedConfig.from_env() if config is None else config
        self.master_ip = self.config.master_ip if master_ip is None else master_ip
        self.master_port = self.config.master_port if master_port is None else master_port

    def connect_and_train(self) -> None:
        """Work for the orchestrator until it ends; wait if it has not started yet.

        A worker that is killed or fails by an error of its GPU is restarted.

        Raises:
            ConnectionLost: the orchestrator refuses the worker (another version, a wrong GT_TOKEN),
                or the worker cannot start; it has printed the reason on standard error.
        """
        self._wait()
        wait = WAIT_SECONDS
        while (status := self._run_once()) != 0:
            if not self._answers():
                return  # the orchestrator has ended meanwhile
            if status == MISTAKEN:
                raise ConnectionLost(
                    f"NetworkWorker: {self._where} answers, and the worker cannot start: see above"
                )
            console.say(f"the worker ended with status {status}; it starts again in {wait:g} s")
            time.sleep(wait)
            wait = min(2 * wait, WAIT_SECONDS_MAX)

    @property
    def _where(self) -> str:
        return f"{self.master_ip}:{self.master_port}"

    def _run_once(self) -> int:
        """The exit status of one worker process."""
        words = ["--host", self.master_ip, "-p", str(self.master_port)]
        words += links.worker_options(self.config)
        environment = settings.with_gpu(self.gpu_id)
        worker = subprocess.Popen([sys.executable, "-m", "gt.worker", *words], env=environment)
        try:
            return worker.wait()
        finally:
            worker.terminate()
            worker.wait()

    def _wait(self) -> None:
        """Wait until the orchestrator answers."""
        wait = WAIT_SECONDS
        while not self._answers():
            console.say_once(f"waiting for the orchestrator at {self._where}")
            time.sleep(wait)
            wait = min(2 * wait, WAIT_SECONDS_MAX)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection((self.master_ip, self.master_port), DIAL_SECONDS).close()
            return True
        return False
