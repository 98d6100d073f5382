"""Processes that do collectives with each other: GT's workers, and those of torch.distributed.

A round of either is some collectives one after the other, as long as the slowest process takes. Run
as a program, this is one process of torch.distributed, which takes commands from standard input.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from processes import WAIT_SECONDS, environment

from gt import _core

KINDS = ["all_reduce", "all_gather", "reduce_scatter"]
READ_MS = 120_000
DONE = 0xF002


def whole_elements(size: int, count: int) -> int:
    """How many float32 are in about `size` bytes, a multiple of the members."""
    return size // 4 // count * count


def attributes(kind: str, count: int, elements: int) -> str:
    """What a line of a trace says of a collective of `elements` elements in all."""
    group = ",".join(map(str, range(count)))
    sizes = ",".join([str(elements // count)] * count)
    return {
        "all_reduce": f"group=[{group}] reduce=sum",
        "all_gather": f"group=[{group}] dim=0 sizes=[{sizes}]",
        "reduce_scatter": f"group=[{group}] reduce=sum dim=0 sizes=[{sizes}]",
    }[kind]


class Workers:
    """GT's workers without a dispatcher: this process writes their instructions.

    Args:
        count: how many.
        arguments: what the worker of an index is started with.
        behind: the lines that follow each collective of a kind and so many elements; its operand is
            %0, its result %1, which they free.
    """

    def __init__(
        self,
        count: int,
        arguments: Callable[[int], Sequence[str]],
        behind: Callable[[str, int], Sequence[str]],
    ) -> None:
        self.behind = behind
        self.connections = [_core.WorkerConnection(index) for index in range(count)]
        self.processes = [
            _worker(connection, arguments(index))
            for index, connection in enumerate(self.connections)
        ]
        for place, connection in enumerate(self.connections):
            for other in self.connections[place + 1 :]:
                connection.introduce(other)
        self.tag = 0

    def round(self, kind: str, size: int, repeats: int, backend: str = "") -> float:
        """Seconds for one collective.

        Args:
            kind: one of KINDS.
            size: bytes of float32, of what is whole.
            repeats: so many in the round.
            backend: ` backend=device`, or nothing: by messages.
        """
        count = len(self.connections)
        elements = whole_elements(size, count)
        own = elements // count if kind == "all_gather" else elements
        self._run([f"%0 = full size=[{own}] value=0.0 dtype=f32"])
        what, behind = attributes(kind, count, elements), self.behind(kind, elements)
        lines: list[str] = []
        for _ in range(repeats):
            self.tag += 1
            lines += [f"%1 = {kind} %0 {what} tag={self.tag}{backend}", *behind]
        seconds = self._run(lines)
        self._run(["free %0"])
        return seconds / repeats

    def _run(self, lines: list[str]) -> float:
        text = "\n".join([*lines, "synchronize request=1"])
        start = time.perf_counter()
        for connection in self.connections:
            connection.instruct(text)
        for connection in self.connections:
            while _last_kind(connection.read(READ_MS)) != DONE:
                pass
        return time.perf_counter() - start

    def end(self) -> None:
        self.connections.clear()
        for process in self.processes:
            process.wait(timeout=WAIT_SECONDS)


def _worker(
    connection: _core.WorkerConnection, arguments: Sequence[str]
) -> subprocess.Popen[bytes]:
    control = connection.worker_fd()
    command = [sys.executable, "-m", "gt.worker", *arguments, "--control-fd", str(control)]
    process = subprocess.Popen(command, pass_fds=[control], env=environment())
    connection.hand_over()
    return process


def _last_kind(words: bytes) -> int | None:
    """Of the last of some messages: the first ones tell the dispatcher of a worker's ways."""
    while words and (length := 4 * (struct.unpack_from("<I", words)[0] >> 16)) < len(words):
        words = words[length:]
    return struct.unpack_from("<I", words)[0] & 0xFFFF if words else None


class TorchProcesses:
    """As many processes of torch.distributed.

    Args:
        backend: `gloo` on the CPU, or `nccl` on the GPUs.
        count: how many.
        store: a file by which they meet.
        settings: of their environment, beside ours.
    """

    def __init__(self, backend: str, count: int, store: str, **settings: str) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), backend, store, str(count)]
        self.count = count
        self.processes = [
            subprocess.Popen(
                [*command, str(rank)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment() | settings,
            )
            for rank in range(count)
        ]
        self.works = all(one.stdout.readline() == "ready\n" for one in self.processes)
        """False where the backend refuses, as NCCL may with several processes on a GPU."""

    def round(self, kind: str, size: int, repeats: int) -> float:
        """Seconds for one collective; see Workers.round."""
        elements = whole_elements(size, self.count)
        self._run(f"{kind} {elements} 0")
        return self._run(f"{kind} {elements} {repeats}") / repeats

    def _run(self, command: str) -> float:
        start = time.perf_counter()
        for process in self.processes:
            process.stdin.write(command + "\n")
            process.stdin.flush()
        for process in self.processes:
            assert process.stdout.readline() == "done\n"
        return time.perf_counter() - start

    def end(self) -> None:
        for process in self.processes:
            process.kill() if not self.works else process.stdin.close()
            process.wait(timeout=WAIT_SECONDS)


def member(backend: str, store: str, count: int, rank: int) -> None:
    """One process: commands from standard input. Zero repeats prepare the tensors."""
    import torch
    import torch.distributed as dist

    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    dist.init_process_group(
        backend, store=dist.FileStore(store, count), rank=rank, world_size=count
    )
    dist.all_reduce(torch.zeros(1, device=device))
    _wait_for(device)
    print("ready", flush=True)
    for line in sys.stdin:
        kind, elements, repeats = line.split()
        if repeats == "0":
            whole = torch.zeros(int(elements), device=device)
            piece = torch.zeros(int(elements) // count, device=device)
        for _ in range(int(repeats)):
            if kind == "all_reduce":
                dist.all_reduce(whole)
            elif kind == "all_gather":
                dist.all_gather_into_tensor(whole, piece)
            else:
                dist.reduce_scatter_tensor(piece, whole)
        _wait_for(device)
        print("done", flush=True)
    dist.destroy_process_group()


def _wait_for(device: object) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    named, file, processes, place = sys.argv[1:]
    member(named, file, int(processes), int(place))
