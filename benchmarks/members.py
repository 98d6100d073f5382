"""Processes that run collectives with each other: GT's workers, and those of torch.distributed.

A round is a number of collectives one after the other; its time is that of the slowest process. Run
as a program, this is one process of torch.distributed, which takes commands from standard input.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from processes import WAIT_SECONDS, environment

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/cluster"))

from worker_rings import WorkerRings
from worker_words import DONE, answers, full, op

KINDS = ["all_reduce", "all_gather", "reduce_scatter"]
READ_MS = 120_000


def whole_elements(size: int, count: int) -> int:
    """Number of float32 in about `size` bytes, rounded down to a multiple of the members."""
    return size // 4 // count * count


def collective(kind: str, count: int, elements: int, tag: int, backend: str) -> bytes:
    """The instruction of a collective over `elements` elements in all, from slot 0 to slot 1."""
    group, sizes = tuple(range(count)), (elements // count,) * count
    attributes: dict[str, tuple[object, ...]] = {
        "all_reduce": (group, "sum", tag),
        "all_gather": (group, 0, sizes, tag),
        "reduce_scatter": (group, "sum", 0, sizes, tag),
    }
    return op(kind, (1,), (0,), attributes[kind] + ((backend,) if backend else ()))


class Workers:
    """GT's workers without a dispatcher: this process writes their instructions.

    Args:
        count: number of workers.
        arguments: command-line arguments of the worker with an index.
        behind: instructions that follow each collective, by its kind and number of elements; its
        operand is slot 0, its result slot 1, which they free.
        settings: environment variables of the workers, added to this process's.
    """

    def __init__(
        self,
        count: int,
        arguments: Callable[[int], Sequence[str]],
        behind: Callable[[str, int], Sequence[bytes]],
        **settings: str,
    ) -> None:
        self.behind = behind
        self.connections = [WorkerRings(index) for index in range(count)]
        self.processes = [
            _worker(connection, arguments(index), settings)
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
            size: bytes of float32 in the whole value.
            repeats: number of collectives in the round.
            backend: `device`, or empty for messages.
        """
        count = len(self.connections)
        elements = whole_elements(size, count)
        own = elements // count if kind == "all_gather" else elements
        self._run([full(0, (own,), 0.0)])
        behind = self.behind(kind, elements)
        steps: list[bytes] = []
        for _ in range(repeats):
            self.tag += 1
            steps += [collective(kind, count, elements, self.tag, backend), *behind]
        seconds = self._run(steps)
        self._run([op("free", (), (0,))])
        return seconds / repeats

    def _run(self, steps: Sequence[bytes]) -> float:
        words = b"".join([*steps, op("synchronize", (), (), (1,))])
        start = time.perf_counter()
        for connection in self.connections:
            connection.write(words)
        for connection in self.connections:
            while DONE not in [answer.kind for answer in answers(connection.read(READ_MS))]:
                pass
        return time.perf_counter() - start

    def end(self) -> None:
        for connection in self.connections:
            connection.close()
        for process in self.processes:
            process.wait(timeout=WAIT_SECONDS)


def _worker(
    connection: WorkerRings, arguments: Sequence[str], settings: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    control = connection.worker_fd()
    command = [sys.executable, "-m", "gt.worker", *arguments, "--control-fd", str(control)]
    process = subprocess.Popen(command, pass_fds=[control], env=environment() | settings)
    connection.hand_over()
    return process


class TorchProcesses:
    """A number of processes of torch.distributed.

    Args:
        backend: `gloo` on the CPU, or `nccl` on the GPUs.
        count: number of processes.
        store: file of their rendezvous.
        settings: environment variables of the processes, added to this process's.
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
            shard = torch.zeros(int(elements) // count, device=device)
        for _ in range(int(repeats)):
            if kind == "all_reduce":
                dist.all_reduce(whole)
            elif kind == "all_gather":
                dist.all_gather_into_tensor(whole, shard)
            else:
                dist.reduce_scatter_tensor(shard, whole)
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
