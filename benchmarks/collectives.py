"""`python collectives.py`: collectives between the workers of one host, beside Gloo.

Both systems have as many processes and do the same in turn, round after round; a round is some
collectives one after the other, as long as the slowest process takes. What is shown are medians and
their ratio. The machine has fewer cores than there are processes where four take part, and may be
shared: the load stands above the table.
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pairs import TIMES, load, machine, two_cores
from processes import WAIT_SECONDS, environment

from gt import _core

RESULTS = Path(__file__).with_name("RESULTS.md")
BEGIN = "<!-- collectives: collectives.py writes from here -->"
END = "<!-- collectives: to here -->"
SIZES = [1_000, 16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000, 64_000_000]
KINDS = ["all_reduce", "all_gather", "reduce_scatter"]
READ_MS = 120_000
DONE = 0xF002


class Workers:
    """GT's workers without a dispatcher: this process writes their instructions."""

    def __init__(self, count: int) -> None:
        self.doors = [_core.WorkerDoor(index) for index in range(count)]
        self.processes = [_worker(door) for door in self.doors]
        for place, door in enumerate(self.doors):
            for other in self.doors[place + 1 :]:
                door.introduce(other)
        self.tag = 0

    def round(self, kind: str, size: int, repeats: int) -> float:
        """Seconds for one collective. `size` is in bytes of float32, of what is whole."""
        count = len(self.doors)
        elements = size // 4 // count * count
        own = elements // count if kind == "all_gather" else elements
        self._run([f"%0 = full size=[{own}] value=0.0 dtype=f32"])
        first, self.tag = self.tag, self.tag + repeats
        group = ",".join(map(str, range(count)))
        sizes = ",".join([str(elements // count)] * count)
        attributes = {
            "all_reduce": f"group=[{group}] fold=sum",
            "all_gather": f"group=[{group}] dim=0 sizes=[{sizes}]",
            "reduce_scatter": f"group=[{group}] fold=sum dim=0 sizes=[{sizes}]",
        }[kind]

        lines = []
        for turn in range(repeats):
            lines.append(f"%1 = {kind} %0 {attributes} tag={first + turn}")
            if kind == "all_reduce":  # as Gloo does it: the result takes the operand's place
                lines += ["free %0", f"%0 = reshape %1 size=[{elements}]"]
            lines.append("free %1")
        seconds = self._run(lines)
        self._run(["free %0"])
        return seconds / repeats

    def _run(self, lines: list[str]) -> float:
        text = "\n".join([*lines, "synchronize request=1"])
        start = time.perf_counter()
        for door in self.doors:
            door.instruct(text)
        for door in self.doors:
            answer = door.read(READ_MS)
            assert struct.unpack_from("<I", answer)[0] & 0xFFFF == DONE, answer
        return time.perf_counter() - start

    def end(self) -> None:
        self.doors.clear()
        for process in self.processes:
            process.wait(timeout=WAIT_SECONDS)


def _worker(door: _core.WorkerDoor) -> subprocess.Popen[bytes]:
    control = door.worker_fd()
    command = [sys.executable, "-m", "gt.worker", "--threads", "1", "--control-fd", str(control)]
    process = subprocess.Popen(command, pass_fds=[control], env=environment())
    door.hand_over()
    return process


class Gloo:
    """As many processes of torch.distributed."""

    def __init__(self, count: int, store: str) -> None:
        command = [sys.executable, __file__, "--gloo", store, str(count)]
        self.count = count
        self.processes = [
            subprocess.Popen(
                [*command, str(rank)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment(),
            )
            for rank in range(count)
        ]
        for process in self.processes:
            assert process.stdout.readline() == "ready\n"

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
            process.communicate(timeout=WAIT_SECONDS)


def _gloo_process(store: str, count: int, rank: int) -> None:
    """One process of Gloo: commands from standard input. Zero repeats prepare the tensors."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, count), rank=rank, world_size=count)
    print("ready", flush=True)
    for line in sys.stdin:
        kind, elements, repeats = line.split()
        if repeats == "0":
            whole = torch.zeros(int(elements))
            piece = torch.zeros(int(elements) // count)
        for _ in range(int(repeats)):
            if kind == "all_reduce":
                dist.all_reduce(whole)
            elif kind == "all_gather":
                dist.all_gather_into_tensor(whole, piece)
            else:
                dist.reduce_scatter_tensor(piece, whole)
        print("done", flush=True)
    dist.destroy_process_group()


@contextmanager
def both(count: int) -> Iterator[tuple[Workers, Gloo]]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        workers = Workers(count)
        stack.callback(workers.end)
        gloo = Gloo(count, str(Path(folder) / "store"))
        stack.callback(gloo.end)
        yield workers, gloo


def compare(workers: Workers, gloo: Gloo, kind: str, size: int, rounds: int) -> list[str]:
    """One line of the table, in microseconds."""
    repeats = max(2, min(100, 8_000_000 // size))
    pairs: list[tuple[float, float]] = []
    for turn in range(rounds + 1):  # the first warms up
        if turn % 2:
            ours = workers.round(kind, size, repeats)
            pairs.append((ours, gloo.round(kind, size, repeats)))
        else:
            theirs = gloo.round(kind, size, repeats)
            pairs.append((workers.round(kind, size, repeats), theirs))
    ours, theirs = (statistics.median(side) * 1e6 for side in zip(*pairs[1:], strict=True))
    count = len(workers.doors)
    cells = [kind, str(count), f"{size:,}", f"{ours:.4g}", f"{theirs:.4g}"]
    return [*cells, f"{ours / theirs:.3g} {TIMES}"]


HEAD = ["collective", "processes", "bytes", "GT, µs", "Gloo, µs", "ratio"]


def write(lines: list[list[str]], note: str, head: list[str], marks: tuple[str, str]) -> None:
    """Puts a table between two marks of RESULTS.md, in place of what is there."""
    begin, end = marks
    table = [head, ["---"] + ["---:"] * (len(head) - 1), *lines]
    text = "\n".join([note, "", *("| " + " | ".join(line) + " |" for line in table)])
    old = RESULTS.read_text(encoding="utf-8")
    before, rest = old.split(begin, 1)
    after = rest.split(end, 1)[1]
    RESULTS.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--gloo", nargs=3, metavar=("STORE", "COUNT", "RANK"))
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    arguments.add_argument("--markdown", action="store_true", help="write the table to RESULTS.md")
    given = arguments.parse_args()
    if given.gloo:
        store, count, rank = given.gloo
        _gloo_process(store, int(count), int(rank))
        return
    lines: list[list[str]] = []
    before = load()
    with two_cores():
        for count in given.processes:
            with both(count) as (workers, gloo):
                for kind in KINDS:
                    for size in given.sizes:
                        lines.append(compare(workers, gloo, kind, size, given.rounds))
                        print("  ".join(cell.ljust(14) for cell in lines[-1]), flush=True)
    if given.markdown:
        day = dt.datetime.now(tz=dt.timezone.utc).date()
        command = "cd benchmarks && python collectives.py --markdown"
        loads = f"Load average {before} before and {load()} after."
        write(lines, f"{day}, `{command}`. {machine()}.\n{loads}", HEAD, (BEGIN, END))


if __name__ == "__main__":
    main()
