"""`gt.cuda.Stream` and its `with` block: accepted, with no effect on the order of instructions."""

from __future__ import annotations

from gt.compat import misses
from gt.cuda.event import Event
from gt.sessions.session import synchronize as finish_work

__all__ = ["Event", "ExternalStream", "Stream", "StreamContext"]


class Stream:
    """A queue of a GPU in PyTorch. In GT each instruction waits for its operands only: a `with`
    block of a stream changes nothing, and no stream has to wait for another.

    Args:
        device: accepted and ignored.
        priority: accepted and ignored.
        kwargs: accepted and ignored.
    """

    def __init__(self, device: object = None, priority: int = 0, **kwargs: object) -> None:
        del kwargs
        self.device = device
        self.priority = priority

    def synchronize(self) -> None:
        """Wait until everything emitted so far has run."""
        finish_work()

    def query(self) -> bool:
        """Wait until everything emitted so far has run; always true."""
        finish_work()
        return True

    def wait_stream(self, stream: Stream) -> None:
        """No effect: an instruction waits for its operands."""

    def wait_event(self, event: Event) -> None:
        """No effect: an instruction waits for its operands."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event now, and return it.

        Args:
            event: Event to record; by default a new one.
        """
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *reason: object) -> None:
        pass


ExternalStream = Stream


class StreamContext:
    """Block of `with gt.cuda.stream(s)`; it changes nothing.

    Args:
        stream: A stream, or None.
    """

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, *reason: object) -> None:
        pass


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
