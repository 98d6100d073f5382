"""The class of shapes: a tuple that prints as in PyTorch and counts elements."""

import math
from typing import SupportsIndex, overload


class Size(tuple[int, ...]):
    """Sizes of a tensor's dimensions."""

    __slots__ = ()

    def numel(self) -> int:
        """Number of elements in a tensor of this size."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"gt.Size([{', '.join(map(str, self))}])"

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> "Size": ...
    def __getitem__(self, index: SupportsIndex | slice) -> "int | Size":
        item = super().__getitem__(index)
        return Size(item) if isinstance(item, tuple) else item

    def __add__(self, other: tuple[int, ...]) -> "Size":  # type: ignore[override]
        return Size(tuple(self) + tuple(other))
