"""Guava's training beside PyTorch's own ways: `python guava.py`, time per step as a ratio.

Both train the same transformer with the same batches, clipping and AdamW: data parallel over
workers (DistributedDataParallel), and a pipeline of four stages (torch.distributed.pipelining's
Schedule1F1B), both on Gloo with one thread a process. Rounds alternate, the best of each counts,
and losses must agree. Processor time is that of all processes of a side, which is more reliable
than elapsed time where other programs take the cores.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType

import torch
from guava_peers import DECAY, LIMIT, RATE, Sizes, TorchProcesses, batches_of, twin
from pairs import TIMES, on_cores, threads
from results import RESULTS, load, note, write

import gt
from gt.guava import DistributedConfig, Orchestrator

BEGIN, END = "<!-- table: guava.py writes from here -->", "<!-- to here -->"
TOLERANCE = 2e-5
HEAD = [
    "what",
    *("PyTorch, ms", "Guava, ms", "ratio"),
    *("target", "met"),
    *("PyTorch, processor ms", "Guava, processor ms", "ratio"),
]
LIBRARIES = {"torch": torch, "gt": gt}


@dataclass(frozen=True)
class Case:
    """A way to divide the training of a model.

    Args:
        way: of PyTorch's processes.
        workers: on both sides.
        what: description.
        target: bound on Guava's time over PyTorch's.
    """

    way: str
    workers: int
    what: str
    target: float

    def batches_a_step(self, sizes: Sizes) -> int:
        return self.workers if self.way == "data" else sizes.micro_batches


CASES = {
    "data-2": Case("data", 2, "data parallel over 2, beside DDP", 0.85),
    "data-4": Case("data", 4, "data parallel over 4, beside DDP", 0.85),
    "pipeline-4": Case("pipeline", 4, "pipeline of 4, beside Schedule1F1B", 0.9),
}


class Guava:
    """Guava workers, and a model that they train.

    Args:
        case: how the model is divided.
        sizes: of the model.
        lib: library of the modules.
    """

    def __init__(self, case: Case, sizes: Sizes, lib: ModuleType) -> None:
        self._case, self._sizes = case, sizes
        self._folder = tempfile.TemporaryDirectory()
        config = DistributedConfig(
            num_workers=case.workers,
            pipeline_parallel=case.way == "pipeline",
            micro_batches=sizes.micro_batches,
            batch_size=sizes.batch,
            learning_rate=RATE,
            weight_decay=DECAY,
            max_grad_norm=LIMIT,
            checkpoint_dir=self._folder.name,
            save_interval=0,
        )
        self._orchestrator = Orchestrator(config)
        self._orchestrator.register_model(twin(lib, sizes))

    def round(self, steps: int, seed: int) -> tuple[float, list[float]]:
        """Train on batches of a seed; returns seconds of a step, and the losses."""
        count = steps * self._case.batches_a_step(self._sizes)
        batches = batches_of(self._sizes, count, seed)
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            metrics = self._orchestrator.start_training(batches, 1)
        return (time.perf_counter() - start) / steps, metrics.losses

    def end(self) -> None:
        self._orchestrator.close()
        self._folder.cleanup()


@dataclass(frozen=True)
class Cost:
    """Seconds of a step: elapsed, and of processors."""

    elapsed: float
    processor: float

    def least(self, other: Cost) -> Cost:
        return Cost(min(self.elapsed, other.elapsed), min(self.processor, other.processor))


@contextlib.contextmanager
def both(case: Case, sizes: Sizes, lib: ModuleType) -> Iterator[tuple[Guava, TorchProcesses]]:
    """The two sides, each with processes that wait while the other trains."""
    theirs = TorchProcesses(case.way, case.workers, sizes)
    try:
        ours = Guava(case, sizes, lib)
        try:
            yield ours, theirs
        finally:
            ours.end()
    finally:
        theirs.end()


def measure(
    case: Case, sizes: Sizes, lib: ModuleType, *, steps: int, rounds: int
) -> tuple[Cost, Cost]:
    """A step of PyTorch and one of Guava, the best of `rounds` rounds after the first.

    Raises:
        ValueError: their losses differ.
    """
    best = [Cost(math.inf, math.inf)] * 2
    with both(case, sizes, lib) as (ours, theirs):
        for turn in range(rounds + 1):
            other, expected = _round(theirs, steps, turn)
            own, losses = _round(ours, steps, turn)
            compare(case, losses, expected)
            if turn:  # the first round is a warm-up
                best = [one.least(cost) for one, cost in zip(best, (other, own), strict=True)]
    return best[0], best[1]


def _round(side: Guava | TorchProcesses, steps: int, seed: int) -> tuple[Cost, list[float]]:
    before = processor_seconds()
    elapsed, losses = side.round(steps, seed)
    return Cost(elapsed, (processor_seconds() - before) / steps), losses


def processor_seconds() -> float:
    """Processor time of this process and its descendants: in a side's turn, that side's."""
    ticks, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            words = path.read_text(encoding="utf-8").rpartition(")")[2].split()
            number = int(path.parent.name)
            parents[number], ticks[number] = int(words[1]), int(words[11]) + int(words[12])
    own = {os.getpid()}
    while grown := {child for child, parent in parents.items() if parent in own} - own:
        own |= grown
    return sum(ticks[one] for one in own) / os.sysconf("SC_CLK_TCK")


def compare(case: Case, losses: Sequence[float], expected: Sequence[float]) -> None:
    """Check that losses agree to a relative 2e-5.

    Raises:
        ValueError: they differ.
    """
    pairs = zip(losses, expected, strict=True)
    if not all(math.isclose(one, other, rel_tol=TOLERANCE) for one, other in pairs):
        raise ValueError(f"{case.what}: losses {losses}, and PyTorch's {expected}")


def line(case: Case, costs: tuple[Cost, Cost]) -> list[str]:
    """The cells of a case."""
    other, own = costs
    ratio = own.elapsed / other.elapsed
    return [
        case.what,
        *_cells(other.elapsed, own.elapsed),
        f"≤ {case.target:g} {TIMES}",
        "yes" if ratio <= case.target else "no",
        *_cells(other.processor, own.processor),
    ]


def _cells(other: float, own: float) -> list[str]:
    return [f"{other * 1e3:.1f}", f"{own * 1e3:.1f}", f"{own / other:.2f} {TIMES}"]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--steps", type=int, default=10, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--library", choices=LIBRARIES, default="torch", help="of Guava's model")
    for field in fields(Sizes):
        name = f"--{field.name.replace('_', '-')}"
        parser.add_argument(name, type=int, default=field.default)
    parser.add_argument(
        "--markdown", action="store_true", help=f"write the table of {RESULTS.name}"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    return arguments


def main() -> None:
    arguments = _arguments()
    sizes = Sizes(**{field.name: getattr(arguments, field.name) for field in fields(Sizes)})
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    before, lines = load(), []
    print(" | ".join(HEAD))
    with on_cores(), threads(1):
        for name in arguments.names or CASES:
            costs = measure(
                CASES[name],
                sizes,
                LIBRARIES[arguments.library],
                steps=arguments.steps,
                rounds=arguments.rounds,
            )
            lines.append(line(CASES[name], costs))
            print(" | ".join(lines[-1]), flush=True)
        said = note(" ".join(["python guava.py", *sys.argv[1:]]), before)
    print(said.rsplit("\n", 1)[1])
    if arguments.markdown:
        write(lines, said, HEAD, (BEGIN, END))


if __name__ == "__main__":
    main()
