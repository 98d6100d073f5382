"""NetworkWorker: a worker of this machine that joins an orchestrator, and comes back."""

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
MISTAKEN = 2  # the exit status of a worker that was started wrong


class NetworkWorker:
    """One worker, on one GPU of this machine.

    Args:
        gpu_id: which, of those that CUDA_VISIBLE_DEVICES leaves; without GPUs the CPU is used.
        config: the settings; those of the environment if not given.
        master_ip: the orchestrator's; as in `config` if not given.
        master_port: the same.
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
        """Work for the orchestrator until it ends; wait for it where it is not there yet.

        A worker that ends in another way, killed or by an error of its GPU, is started again.

        Raises:
            ConnectionLost: the orchestrator refuses it (another version, a wrong GT_TOKEN), or it
                cannot start here; the worker has said why on standard error.
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
        """Return when the orchestrator answers."""
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
