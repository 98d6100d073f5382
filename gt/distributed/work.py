"""Handle of an asynchronous collective."""

from gt._core import Tensor


class Work:
    """A collective in flight.

    Every operation in GT is asynchronous: instructions run when their operands are ready, and only
    a read waits. So `wait()` only orders the program, as on a CUDA stream, and costs nothing.
    """

    __slots__ = ("_result",)

    def __init__(self, result: Tensor) -> None:
        self._result = result

    def wait(self) -> Tensor:
        """Result of the collective; instructions that use it run after it."""
        return self._result

    def result(self) -> Tensor:
        """The result of `wait()`."""
        return self._result
