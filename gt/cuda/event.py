"""`gt.cuda.Event`: a point in the program, for measurements of elapsed time."""

from __future__ import annotations

import time

from gt.errors import InvalidUse
from gt.sessions.session import synchronize as finish_work

__all__ = ["Event"]


class Event:
    """A point in time; between two of them the workers ran the instructions emitted there.

    Recording waits until everything emitted so far has run: events are for measurements.

    Args:
        enable_timing: Whether `elapsed_time` is available.
        blocking: accepted and ignored.
        interprocess: accepted and ignored.
        external: accepted and ignored.
    """

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,  # noqa: ARG002
        interprocess: bool = False,  # noqa: ARG002
        external: bool = False,  # noqa: ARG002
    ) -> None:
        self._is_timed = enable_timing
        self._at_s: float | None = None

    def record(self, stream: object = None) -> None:  # noqa: ARG002 - there is one order
        """Wait until everything emitted so far has run, and take the time."""
        finish_work()
        self._at_s = time.perf_counter()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another one.

        Raises:
            RuntimeError: An event has no timing, or was not recorded.
        """
        if not (self._is_timed and end_event._is_timed):
            raise InvalidUse("Both events must be created with argument 'enable_timing=True'.")
        if self._at_s is None or end_event._at_s is None:
            raise InvalidUse("Both events must be recorded before calculating elapsed time.")
        return (end_event._at_s - self._at_s) * 1000

    def query(self) -> bool:
        """True: everything emitted before has run when recording returns."""
        return True

    def synchronize(self) -> None:
        """No effect: recording has waited."""

    def wait(self, stream: object = None) -> None:
        """No effect: instructions run in the order of the program."""
