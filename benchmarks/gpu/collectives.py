"""`python gpu/collectives.py`: collectives of values on GPUs: device to device, by bytes, and NCCL.

To be run from benchmarks/ on a machine with GPUs. Workers share GPUs where there are fewer than
processes; without MPS these take turns, which NCCL's kernels, waiting on the device, feel most.
NCCL takes part if it goes with so many processes a GPU (NCCL_MULTI_RANK_GPU_ENABLE=1).
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from collectives import DONE, READ_MS, write
from pairs import load, machine
from processes import WAIT_SECONDS, environment

from gt import _core

BEGIN = "<!-- gpu collectives: gpu/collectives.py writes from here -->"
END = "<!-- gpu collectives: to here -->"
SIZES = [1_000, 16_000, 256_000, 1_000_000, 16_000_000, 256_000_000]
KINDS = ["all_reduce", "all_gather", "reduce_scatter"]
HEAD = ["collective", "processes", "bytes", "device, µs", "bytes, µs", "NCCL, µs"]
WAYS = {"device": " way=device", "bytes": ""}


def attributes(kind: str, count: int, elements: int) -> str:
    """What a line of a trace says of a collective of `elements` elements in all."""
    group = ",".join(map(str, range(count)))
    sizes = ",".join([str(elements // count)] * count)
    return {
        "all_reduce": f"group=[{group}] fold=sum",
        "all_gather": f"group=[{group}] dim=0 sizes=[{sizes}]",
        "reduce_scatter": f"group=[{group}] fold=sum dim=0 sizes=[{sizes}]",
    }[kind]


class Workers:
    """GT's workers, to which this process writes."""

    def __init__(self, count: int) -> None:
        self.doors = [_core.WorkerDoor(index) for index in range(count)]
        self.processes = []
        for index, door in enumerate(self.doors):
            control = door.worker_fd()
            command = [
                sys.executable,
                "-m",
                "gt.worker",
                "--backend",
                "pytorch",
                "--id",
                str(index),
            ]
            command += ["--control-fd", str(control)]
            self.processes.append(subprocess.Popen(command, pass_fds=[control], env=environment()))
            door.hand_over()
        for place, door in enumerate(self.doors):
            for other in self.doors[place + 1 :]:
                door.introduce(other)
        self.tag = 0

    def round(self, kind: str, size: int, way: str, repeats: int) -> float:
        """Seconds for one collective; `size` is in bytes of float32, of what is whole."""
        count = len(self.doors)
        elements = size // 4 // count * count
        own = elements // count if kind == "all_gather" else elements
        self._run([f"%0 = full size=[{own}] value=0.0 dtype=f32"])
        what, lines = attributes(kind, count, elements), []
        for _ in range(repeats):
            self.tag += 1
            # The sum after it makes the computation wait, as what needs the result does.
            lines.append(f"%1 = {kind} %0 {what} tag={self.tag}{WAYS[way]}")
            lines += ["%2 = slice %1 dim=0 start=0 end=1 step=1", "%3 = neg %2", "free %1 %2 %3"]
        seconds = self._run(lines)
        self._run(["free %0"])
        return seconds / repeats

    def _run(self, lines: list[str]) -> float:
        text = "\n".join([*lines, "synchronize request=1"])
        start = time.perf_counter()
        for door in self.doors:
            door.instruct(text)
        for door in self.doors:
            answer = b""
            while struct.unpack_from("<I", answer.ljust(4, b"\0"))[0] & 0xFFFF != DONE:
                answer = _last(door.read(READ_MS))
        return time.perf_counter() - start

    def end(self) -> None:
        self.doors.clear()
        for process in self.processes:
            process.wait(timeout=WAIT_SECONDS)


def _last(words: bytes) -> bytes:
    """The last of some messages: the first ones tell the dispatcher of a worker's ways."""
    while (length := 4 * (struct.unpack_from("<I", words)[0] >> 16)) < len(words):
        words = words[length:]
    return words


class Nccl:
    """As many processes of torch.distributed; `works` is False where NCCL refuses."""

    def __init__(self, count: int, store: str) -> None:
        command = [sys.executable, __file__, "--nccl", store, str(count)]
        self.processes = [
            subprocess.Popen(
                [*command, str(rank)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment() | {"NCCL_MULTI_RANK_GPU_ENABLE": "1"},
            )
            for rank in range(count)
        ]
        self.count = count
        self.works = all(one.stdout.readline() == "ready\n" for one in self.processes)

    def round(self, kind: str, size: int, repeats: int) -> float:
        """Seconds for one collective."""
        elements = size // 4 // self.count * self.count
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


def _nccl_process(store: str, count: int, rank: int) -> None:
    import torch.distributed as dist

    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", store=dist.FileStore(store, count), rank=rank, world_size=count)
    dist.all_reduce(torch.zeros(1, device=device))
    torch.cuda.synchronize()
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
        torch.cuda.synchronize()
        print("done", flush=True)
    dist.destroy_process_group()


def compare(workers: Workers, nccl: Nccl, kind: str, size: int, rounds: int) -> list[str]:
    """One line of the table: medians in microseconds, the systems in turn."""
    repeats = max(3, min(50, 64_000_000 // size))
    sides = {way: lambda way=way: workers.round(kind, size, way, repeats) for way in WAYS}
    if nccl.works:
        sides["nccl"] = lambda: nccl.round(kind, size, repeats)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds + 1):
        for side, run in sides.items():
            took = run()
            if turn:  # the first warms up
                seconds[side].append(took)
    found = [f"{statistics.median(all_of) * 1e6:.4g}" for all_of in seconds.values()]
    return [kind, str(len(workers.doors)), f"{size:,}", *found, *(["refused"] * (3 - len(found)))]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--nccl", nargs=3, metavar=("STORE", "COUNT", "RANK"))
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    arguments.add_argument("--markdown", action="store_true", help="write the table to RESULTS.md")
    given = arguments.parse_args()
    if given.nccl:
        store, count, rank = given.nccl
        _nccl_process(store, int(count), int(rank))
        return
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: nothing is measured")
    lines, before = [], load()
    for count in given.processes:
        with tempfile.TemporaryDirectory() as folder:
            workers, nccl = Workers(count), Nccl(count, str(Path(folder) / "store"))
            for kind in KINDS:
                for size in given.sizes:
                    lines.append(compare(workers, nccl, kind, size, given.rounds))
                    print(" | ".join(lines[-1]), flush=True)
            nccl.end()
            workers.end()
    names = {torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())}
    note = (
        f"{dt.datetime.now(tz=dt.timezone.utc):%Y-%m-%d}, "
        "`cd benchmarks && python gpu/collectives.py --markdown`, "
        f"{torch.cuda.device_count()} x {', '.join(sorted(names))}. {machine()}.\n"
        f"Load average {before} before and {load()} after."
    )
    if given.markdown:
        write(lines, note, HEAD, (BEGIN, END))


if __name__ == "__main__":
    main()
