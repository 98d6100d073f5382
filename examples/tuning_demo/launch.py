"""Starts a dispatcher and eight workers by hand, trains on them with train.py, and ends them.

Arguments after the options of this script go to train.py: `launch.py --workers 4 --steps 5`.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import gt

TRAIN = Path(__file__).with_name("train.py")
LISTENING = "listening on "
WAIT_SECONDS = 60.0


def start_worker(index: int, address: str) -> subprocess.Popen[bytes]:
    """A worker; with GPUs each has one of its own, by its index."""
    host, port = address.rsplit(":", 1)
    command = [sys.executable, "-m", "gt.worker", "--host", host, "-p", port, "--id", str(index)]
    return subprocess.Popen(command)


def wait_for_workers(address: str, started: list[subprocess.Popen[bytes]]) -> None:
    """Return when all workers have joined."""
    deadline = time.monotonic() + WAIT_SECONDS
    gt.connect(address)
    while len(gt.debug.get_worker_stats()) < len(started):
        if time.monotonic() > deadline or any(one.poll() is not None for one in started):
            raise RuntimeError("a worker has not joined; what it said stands above")
        time.sleep(0.05)
    gt.disconnect()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("-p", "--port", type=int, default=0, help="0 takes a free one")
    arguments, for_training = parser.parse_known_args()
    environment = dict(os.environ)
    os.environ.pop("GT_CONFIG", None)  # for the training only; this check needs no layout
    started: list[subprocess.Popen[bytes]] = []
    server = subprocess.Popen(
        [sys.executable, "-m", "gt.server", "-p", str(arguments.port)], stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        first = server.stdout.readline().decode()
        if not first.startswith(LISTENING):
            return server.wait()
        address = first.removeprefix(LISTENING).strip()
        started += [start_worker(index, address) for index in range(arguments.workers)]
        wait_for_workers(address, started)
        print(f"dispatcher at {address}, {arguments.workers} workers", flush=True)
        command = [sys.executable, TRAIN, "--connect", address, *for_training]
        return subprocess.call(command, env=environment)
    finally:
        for process in (server, *started):  # the server first: it would report lost workers
            process.terminate()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
