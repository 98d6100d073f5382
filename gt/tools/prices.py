"""`gt prices`: measures the links between workers on this host and rewrites a file of prices.

The dispatcher measures (`gt-dispatcher --probe`); this starts one with workers and ends them again.
"""

import re
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from gt.tensors import safetensors_file

LOOK_SECONDS = 0.5  # between two checks that all processes are alive
_PAIR = re.compile(r"\s*(message|byte)\s*\[")
_MEASURED = re.compile(r"measured (\d+) link\(s\)")


def run(file: str, *, workers: int) -> int:
    """Measure the cost of messages and bytes between each two workers.

    Args:
        file: file for the prices; other prices in it stay.
        workers: number of workers to start, at least 2.

    Raises:
        ValueError: fewer than two workers have no link.
        RuntimeError: the dispatcher or a worker ended before all links were measured.
    """
    if workers < 2:
        raise ValueError(f"--workers {workers}: a link has two ends")
    path = Path(file)
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        text = "".join(f"{line}\n" for line in lines if not _PAIR.match(line)).encode()
        safetensors_file.replace(path, lambda: [text])
    server = [sys.executable, "-m", "gt.server", "-p", "0", "--prices", file, "--probe"]
    # Unbuffered: polling the pipe would not see data in a buffer of ours.
    dispatcher = subprocess.Popen(server, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    processes = [dispatcher]
    try:
        address = _line(dispatcher.stdout, processes).removeprefix("listening on ")
        port = address.rsplit(":", 1)[-1]
        worker = [sys.executable, "-m", "gt.worker", "-p", port]
        processes += [subprocess.Popen([*worker, "--id", str(index)]) for index in range(workers)]
        missing = workers * (workers - 1) // 2
        while missing > 0:
            line = _line(dispatcher.stderr, processes)
            match = _MEASURED.search(line)
            missing -= int(match[1]) if match else 0
            if " ERROR " in line or "is gone" in line:
                raise RuntimeError(line)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.communicate()
    print(path.read_text(encoding="utf-8"), end="")
    return 0


def _line(pipe: IO[bytes] | None, processes: Sequence[subprocess.Popen[bytes]]) -> str:
    """Next line from the dispatcher; raises once a process has ended."""
    assert pipe is not None
    while not select.select([pipe], [], [], LOOK_SECONDS)[0]:
        for process in processes:
            if process.poll() is not None:
                raise RuntimeError(f"{' '.join(process.args)} ended with {process.returncode}")  # type: ignore[arg-type]
    line = pipe.readline().decode()
    if not line:
        raise RuntimeError("the dispatcher ended")
    return line.strip()
