"""Tensors of the loader's process, as a worker has them. Nothing is sent here (parcels.py)."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Planned:
    """How a tensor is made, and of what: it becomes that tensor where a batch is opened."""

    make: Callable[..., object]
    arguments: tuple[object, ...]

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.make, self.arguments
