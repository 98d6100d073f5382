"""Measurements of a run: a record a step, lines for people, JSON lines for programs.

Losses stay on the workers until a line is due, so that nothing waits in between.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gt
from gt.guava import console
from gt.guava.boundaries import Boundaries
from gt.guava.config import DistributedConfig
from gt.guava.library import Library, Value

__all__ = ["Metrics", "Step"]

FILE = "metrics.jsonl"


@dataclasses.dataclass(frozen=True)
class Step:
    """One step, counted from 1."""

    step: int
    epoch: int
    loss: float
    learning_rate: float
    gradient_norm: float
    samples: int


class Metrics:
    """The records of a run; `losses` are those of its steps.

    Args:
        config: which lines are written, and how often.
        library: library of the values' tensors.
    """

    def __init__(self, config: DistributedConfig, library: Library) -> None:
        self.steps: list[Step] = []
        self.boundaries: Boundaries | None = None
        self.profiles_memory = False
        self._config, self._library = config, library
        self._waiting: list[tuple[int, int, Value, float, Value, int]] = []
        self._begun = time.perf_counter()
        self._bar: Any = None
        self._file = Path(config.checkpoint_dir) / FILE

    @property
    def losses(self) -> list[float]:
        """The loss of each step of this run."""
        return [step.loss for step in self.steps]

    def add(
        self, *, step: int, epoch: int, loss: Value, rate: float, norm: Value, samples: int
    ) -> None:
        """Add a step's values, which are read when a line is due."""
        self._waiting.append((step, epoch, loss, rate, norm, samples))
        if self._bar is not None:
            self._bar.update()
        if step % self._config.log_step_every == 0:
            self.flush(is_line_due=True)

    def flush(self, *, is_line_due: bool = False) -> None:
        """Read the pending values, and write them."""
        if not self._waiting:
            return
        steps, epochs, losses, rates, norms, samples = zip(*self._waiting, strict=True)
        values = self._read(losses), rates, self._read(norms)
        read = list(map(Step, steps, epochs, *values, samples))
        seconds = max(time.perf_counter() - self._begun, 1e-9)
        speed = sum(step.samples for step in read) / seconds
        self._waiting, self._begun = [], time.perf_counter()
        self.steps += read
        memory = gt.debug.get_worker_stats()
        self._write(read, speed, memory)
        if self._bar is not None:
            self._bar.set_postfix(loss=f"{read[-1].loss:.4f}", refresh=False)
        if is_line_due:
            self._say(read[-1], speed, memory)

    @contextlib.contextmanager
    def bar(self, total: int | None, first: int) -> Iterator[None]:
        """Show progress inside the block: tqdm's bar, if it is installed and output is a terminal.

        Args:
            total: number of steps of the run, if known.
            first: number of steps that were made before.
        """
        try:
            from tqdm import tqdm
        except ImportError:
            yield
            return
        with tqdm(total=total, initial=first, unit="step", disable=None) as self._bar:
            yield
        self._bar = None

    def _read(self, values: Sequence[Value]) -> list[float]:
        """Read numbers at once, as a worker may be far away."""
        read: list[float] = self._library.module.stack(values).tolist()
        return read

    def _write(self, read: list[Step], speed: float, memory: list[dict[str, float]]) -> None:
        peak = max((one.get("bytes_peak", 0) for one in memory), default=0)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            for step in read:
                record = {**dataclasses.asdict(step), "samples_per_second": round(speed, 3)}
                file.write(json.dumps({**record, "bytes_peak": peak}) + "\n")

    def _say(self, step: Step, speed: float, memory: list[dict[str, float]]) -> None:
        values = (
            f"step {step.step} epoch {step.epoch} loss {step.loss:.6f} lr {step.learning_rate:.3g} "
            f"grad norm {step.gradient_norm:.4g} {speed:.1f} samples/s"
        )
        if self._config.compact_log:
            console.say(f"{values} memory {megabytes(max(map(held, memory), default=0))}")
        else:
            for one in memory:
                console.say(
                    f"worker {one['worker']:.0f} {values} memory {megabytes(held(one))} "
                    f"instructions {one.get('executed', 0):.0f}"
                )
        if self.profiles_memory:
            for one in memory:
                console.say(memory_line(one))
        for line in self.boundaries.lines() if self.boundaries is not None else ():
            console.say(line)


def held(worker: dict[str, float]) -> float:
    """Bytes of a worker's values; 0 for a worker that does not answer."""
    return worker.get("bytes", 0)


def megabytes(count: float) -> str:
    """A number of bytes in megabytes, for display."""
    return f"{count / 1e6:.1f} MB"


def memory_line(worker: dict[str, float]) -> str:
    """A worker's memory in use, and its peak."""
    return (
        f"memory of worker {worker['worker']:.0f}: allocated {megabytes(held(worker))} in "
        f"{worker.get('values', 0):.0f} values, peak {megabytes(worker.get('bytes_peak', 0))}"
    )
