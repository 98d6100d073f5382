"""Tensors to be made in the loader's process, as placeholders in a worker. parcels.py
sends them.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Planned:
    """A function and arguments that make a tensor; they become that tensor when a batch
    is opened.
    """

    make: Callable[..., object]
    arguments: tuple[object, ...]

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.make, self.arguments
