"""Handle of an asynchronous collective."""

from gt._core import Tensor


class Work:
    """A collective in flight.

    Everything in GT is: instructions run when their operands are there, and only a read waits. So
    `wait()` is an order of the program, as it is on a CUDA stream, and costs nothing.
    """

    __slots__ = ("_result",)

    def __init__(self, result: Tensor) -> None:
        self._result = result

    def wait(self) -> Tensor:
        """The collective's result; what uses it runs after the collective."""
        return self._result

    def result(self) -> Tensor:
        """The result of `wait()`."""
        return self._result
