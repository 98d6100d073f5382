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

from gt import safetensors_file

LOOK_SECONDS = 0.5  # between two looks at whether everybody is still alive
_PAIR = re.compile(r"\s*(message|byte)\s*\[")
_MEASURED = re.compile(r"measured (\d+) link\(s\)")


def run(file: str, *, workers: int) -> int:
    """Measure anew what messages and bytes cost between each two workers.

    Args:
        file: where the prices go; other prices in it stay as they are.
        workers: how many to start, from 2 on.

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
    # Without a buffer of ours: what that held, no look at the pipe would find.
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
    """The next line of the dispatcher, as long as nobody has ended."""
    assert pipe is not None
    while not select.select([pipe], [], [], LOOK_SECONDS)[0]:
        for process in processes:
            if process.poll() is not None:
                raise RuntimeError(f"{' '.join(process.args)} ended with {process.returncode}")  # type: ignore[arg-type]
    line = pipe.readline().decode()
    if not line:
        raise RuntimeError("the dispatcher ended")
    return line.strip()
