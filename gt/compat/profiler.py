"""`gt.profiler`: the workers' time and number of kernels for named parts of a program.

PyTorch's profiler records each kernel of its process. Here kernels run on workers, so a profile has
the ranges that a program names (`record_function`, and each `step()`); the instructions are in the
log (`GT_INSTRUCTION_LOG=FILE`, which `gt visualize` draws).
"""

from __future__ import annotations

import contextlib
import enum
import json
import pathlib
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gt.compat import debug, misses
from gt.errors import InvalidUse, InvalidValue
from gt.tensors import safetensors_file

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


class ProfilerActivity(enum.Enum):
    """Kinds of kernels that PyTorch profiles; accepted without effect: all work of the workers
    counts.
    """

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """Action of a profile at a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def supported_activities() -> set[ProfilerActivity]:
    """The CPU and CUDA."""
    return {ProfilerActivity.CPU, ProfilerActivity.CUDA}


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """A schedule of rounds: each waits, warms up and records.

    Args:
        wait: number of steps that are ignored.
        warmup: number of steps before the recorded ones.
        active: number of recorded steps.
        repeat: number of rounds; 0 for no limit.
        skip_first: number of steps before the first round.
        skip_first_wait: nonzero for a first round without waiting.
    """
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError("Invalid profiler schedule arguments")

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        step -= skip_first
        if step >= 0 and skip_first_wait:
            step += wait
        length = wait + warmup + active
        if step < 0 or (repeat and step // length >= repeat):
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == length - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


@dataclass(frozen=True)
class Range:
    """One run of a named part of the program.

    Attributes:
        name: name given by the program.
        begin_us: start, in microseconds of a clock of the process.
        time_us: microseconds until the workers had run it.
        kernels: number of kernels in that time.
    """

    name: str
    begin_us: float
    time_us: float
    kernels: int


@dataclass(frozen=True)
class Average:
    """Totals of all ranges with one name.

    Attributes:
        key: the name.
        count: number of runs.
        cpu_time_total: total microseconds until the workers had run them.
        kernels: number of kernels in that time.
    """

    key: str
    count: int
    cpu_time_total: float
    kernels: int

    @property
    def cpu_time(self) -> float:
        """Mean microseconds of one run."""
        return self.cpu_time_total / self.count


class Averages(list[Average]):
    """The averages of a profile, in the order in which their names first appeared."""

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: object) -> str:
        """The averages as text.

        Args:
            sort_by: an attribute, largest first: `cpu_time_total`, `cpu_time`, `count` or
                `kernels`; other names of PyTorch stand for `cpu_time_total`.
            row_limit: limit of lines.
            options: accepted without effect: PyTorch's options for its columns.
        """
        del options
        rows: Iterable[Average] = self
        if sort_by is not None:
            sort_key = sort_by if sort_by in ("cpu_time", "count", "kernels") else "cpu_time_total"
            rows = sorted(self, key=lambda row: -float(getattr(row, sort_key)))
        cells = [("Name", "Total", "Average", "# of Calls", "Kernels")]
        cells += [
            (row.key, _shown(row.cpu_time_total), _shown(row.cpu_time), f"{row.count}",
             f"{row.kernels}")
            for row in list(rows)[:row_limit]
        ]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in cells
        ]
        rule = "-" * len(lines[0])
        return "\n".join([rule, lines[0], rule, *lines[1:], rule])


class profile:  # noqa: N801 - PyTorch's name
    """Records the ranges of a `with` block. A range waits for the workers at its start and end, so
    that its time is theirs; a profiled program runs slower.

    Args:
        activities: accepted without effect: all workers count.
        schedule: the action at each step, from `schedule()`; without it all steps are recorded.
        on_trace_ready: a function that is called with the profile at the end of a round's last
            step.
        options: accepted without effect: further things that PyTorch may record.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], object] | None = None,
        **options: object,
    ) -> None:
        del activities, options
        self._schedule = schedule
        self._on_trace_ready = on_trace_ready
        self.parts: list[Range] = []
        self._step = contextlib.ExitStack()
        self.step_num = 0
        self.current_action = ProfilerAction.NONE

    def start(self) -> None:
        """Start recording, as the `with` block does.

        Raises:
            InvalidUse: another profile is recording.
        """
        if _open:
            raise InvalidUse("Profiler is already enabled on this thread")
        _open.append(self)
        self._enter(0)

    def stop(self) -> None:
        """Stop recording, as the end of the `with` block does."""
        self._step.close()
        if self.current_action in _RECORDING:
            self._ready()
        self.current_action = ProfilerAction.NONE
        _open.remove(self)

    def step(self) -> None:
        """Begin the next step."""
        self._step.close()
        if self.current_action is ProfilerAction.RECORD_AND_SAVE:
            self._ready()
        self._enter(self.step_num + 1)

    def _enter(self, number: int) -> None:
        before, self.step_num = self.current_action, number
        scheduled = self._schedule is not None
        action = self._schedule(number) if self._schedule else ProfilerAction.RECORD
        if action in _RECORDING and before is not ProfilerAction.RECORD:
            self.parts = []
        self.current_action = action
        if scheduled:
            self._step.enter_context(record_function(f"ProfilerStep#{number}"))

    def _ready(self) -> None:
        if self._on_trace_ready is not None:
            self._on_trace_ready(self)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self.stop()

    def events(self) -> list[Range]:
        """All ranges, in the order in which they ended."""
        return list(self.parts)

    def key_averages(self, *options: object, **named: object) -> Averages:
        """The totals of the ranges by name.

        Args:
            options: accepted without effect: PyTorch's further grouping.
            named: accepted without effect.
        """
        del options, named
        by_name: dict[str, list[Range]] = {}
        for part in sorted(self.parts, key=lambda part: part.begin_us):
            name = "ProfilerStep*" if part.name.startswith("ProfilerStep#") else part.name
            by_name.setdefault(name, []).append(part)
        return Averages(
            Average(name, len(parts), sum(x.time_us for x in parts), sum(x.kernels for x in parts))
            for name, parts in by_name.items()
        )

    def export_chrome_trace(self, path: str) -> None:
        """Write the ranges for chrome://tracing.

        Args:
            path: path of a JSON file.
        """
        events = [
            {
                "name": part.name, "ph": "X", "pid": 0, "tid": 0, "ts": part.begin_us,
                "dur": part.time_us, "args": {"kernels": part.kernels},
            }
            for part in self.parts
        ]  # fmt: skip
        text = json.dumps({"traceEvents": events}).encode()
        safetensors_file.replace(pathlib.Path(path), lambda: [text])


class record_function(contextlib.ContextDecorator):  # noqa: N801 - PyTorch's name
    """A `with` block, or each call of a function, as a range of the recording profile.

    Args:
        name: name of the range.
        args: accepted and ignored.
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        del args
        self.name = name
        self._begun: list[tuple[float, int] | None] = []

    def __enter__(self) -> record_function:
        records = bool(_open) and _open[0].current_action in _RECORDING
        kernels = _kernels() if records else 0  # waits for all earlier work
        self._begun.append((_now_us(), kernels) if records else None)
        return self

    def __exit__(self, *reason: object) -> None:
        begun = self._begun.pop()
        if begun is not None and _open:
            kernels = _kernels()
            begin_us, before = begun
            _open[0].parts.append(
                Range(self.name, begin_us, _now_us() - begin_us, kernels - before)
            )


_open: list[profile] = []  # the recording profile, of all threads


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """A function for `on_trace_ready`, which writes each round into a separate file.

    Args:
        dir_name: folder, created if need be.
        worker_name: prefix of the files; the host's name if not given.
        use_gzip: must be False.
    """
    if use_gzip:
        raise InvalidValue("tensorboard_trace_handler: use_gzip=True is not supported")
    folder = pathlib.Path(dir_name)
    name = worker_name or socket.gethostname()

    def write(finished: profile) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        finished.export_chrome_trace(str(folder / f"{name}.{time.time_ns()}.pt.trace.json"))

    return write


def _kernels() -> int:
    """Number of kernels that the workers have run, once all emitted instructions have run."""
    rows = debug.get_worker_stats()
    return sum(int(row["aten_calls"] + row["python_calls"]) for row in rows)


def _now_us() -> float:
    return time.perf_counter_ns() / 1e3


def _shown(time_us: float) -> str:
    return f"{time_us / 1e3:.3f}ms"


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
