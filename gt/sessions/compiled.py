"""`gt.compile`: what a function does is held back, and sent as one call of a compiled program.

Python runs the function each time, so nothing that it does is assumed: there are no guards, no
graph breaks and no stale values. What changes is how its instructions are sent. At first they go
one by one, and their programs are counted; a program that comes again is given to a worker, which
compiles it in a process of lowest priority while everything goes on. Then some calls are timed
beside the instructions, and if they are faster, the function's instructions are one instruction
from then on, `call`. A program that differs, because a shape, a number or a branch did, is sent one
by one, as always.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, ParamSpec, TypeVar

import numpy as np

from gt import _core, config
from gt._core import Tensor
from gt.errors import Error

__all__ = ["CompiledFunction", "Region", "Segment"]

# Most programs of one function: beyond them its instructions are sent one by one.
PROGRAMS_MAX = 8

P = ParamSpec("P")
R = TypeVar("R")


class Segment(NamedTuple):
    """A part of a function's last call that was held back together."""

    # The user's line of its first instruction.
    place: str | None
    instructions: int
    # `called`, `plain`, or why it is no program.
    outcome: str
    # The operator that ended it before the function did.
    end: str | None


class Region:
    """The programs of one part of the user's program.

    Args:
        name: what to call it in messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.segments: list[Segment] = []
        self._programs: _core.RegionPrograms | None = None
        # Bytes of programs, and workers' answers about them.
        self._bytes: dict[int, Tensor] = {}
        self._answers: dict[int, list[Tensor]] = {}
        self._stages: dict[int, str] = {}

    def begin(self) -> bool:
        """Open the region; False where everything runs as always."""
        if config.compilation() == "off":
            return False
        self.calls += 1
        if self.calls == 1:
            return False
        if self._programs is None:
            self._programs = _core.RegionPrograms(
                config.hotpath_threshold(),
                config.hotpath_min_seq(),
                PROGRAMS_MAX,
                config.compilation() == "auto",
            )
        answers, self._answers = self._answers, {}
        for digest, tensors in answers.items():
            try:
                numbers = [int(tensor) for tensor in tensors]
            except Error:
                continue  # the session that was asked has ended
            if len(numbers) == 1:
                self._programs.answered(digest, numbers[0])
            else:
                self._programs.timed(digest, self.nanoseconds(numbers))
            self._say(digest)
        return _core.region_open(self._programs)

    def end(self) -> None:
        """Close the region: what it held back is sent."""
        assert self._programs is not None
        segments, wanted, answers = _core.region_close(self._programs)
        self.segments = [Segment(*segment) for segment in segments]
        for digest, data in wanted:
            self._bytes[digest] = _core.from_numpy_copy(np.frombuffer(data, np.uint8))
            self._programs.uploaded(digest, self._bytes[digest])
        self._answers = dict(answers)

    def stages(self) -> list[tuple[int, str, int, int, tuple[int, int] | None]]:
        """Number of instructions, stage, numbers of occurrences and calls, and nanoseconds of the
        instructions and of a call where they were timed, of each program.
        """
        if self._programs is None:
            return []
        return [stage[1:] for stage in self._programs.stages()]

    @staticmethod
    def nanoseconds(answers: Sequence[int]) -> int:
        """Time of a run between two questions: stage and clock before, stage and clock behind."""
        return answers[3] - answers[1]

    def explanation(self) -> str:
        """Programs, and the fate of the last call, as text for people."""
        lines = [f"{self.name}: {self.calls} calls"]
        for stage in self.stages():
            instructions, word, seen, called, times = stage
            took = f"; {times[0] / 1e6:.3f} ms, called {times[1] / 1e6:.3f} ms" if times else ""
            lines.append(
                f"  a program of {instructions} instructions: {word}; seen {seen} times, "
                f"called {called} times{took}"
            )
        if self.segments:
            lines.append("the last call:")
        for segment in self.segments:
            end = f", ended by {segment.end}" if segment.end else ""
            place = segment.place or "?"
            lines.append(f"  {place}: {segment.instructions} instructions, {segment.outcome}{end}")
        return "\n".join(lines)

    def _say(self, digest: int) -> None:
        assert self._programs is not None
        found = {stage[0]: stage for stage in self._programs.stages()}
        stage = found[digest][2]
        if config.debugs_compile() and self._stages.get(digest) != stage:
            from gt.sessions import notices  # imported here: it loads `logging`

            notices.say(f"{self.name}: a program of {found[digest][1]} instructions is {stage}")
        self._stages[digest] = stage


# Regions of scopes with `compile: true`, by name.
_scopes: dict[str, Region] = {}


def opened(name: str) -> Region | None:
    """The region of a scope, if it could be opened."""
    region = _scopes.setdefault(name, Region(name))
    return region if region.begin() else None


def region_of(what: object) -> Region:
    """The region of what `gt.compile` returned, or of the scope of this name.

    Raises:
        TypeError: there is none.
    """
    if isinstance(what, str) and what in _scopes:
        return _scopes[what]
    function = getattr(what, "forward", what)
    if isinstance(function, CompiledFunction):
        return function.region
    raise TypeError(
        f"explain_compile(): {what!r} is nothing that gt.compile returned, and no scope with "
        "`compile: true` that the program has entered"
    )


class CompiledFunction(Generic[P, R]):
    """A function whose instructions are sent as calls of compiled programs.

    Args:
        function: the function.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.region = Region(getattr(function, "__qualname__", type(function).__name__))
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self.region.begin():
            return self._function(*args, **kwargs)
        try:
            return self._function(*args, **kwargs)
        finally:
            self.region.end()

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., R]:
        return self if instance is None else functools.partial(self, instance)  # type: ignore[arg-type] # a method's first argument

    def __reduce__(self) -> tuple[object, ...]:
        return (CompiledFunction, (self._function,))
