"""Places in a generator's stream from which an instruction draws, for both backends. No value is
made here.
"""

from __future__ import annotations

from typing import NamedTuple

Size = tuple[int, ...]


class Place(NamedTuple):
    """A draw and a box of its values; without `whole` and `start` all values.

    Args:
        seed: Seed as on the wire, where integers are signed; a seed is any 64 bits.
        draw: Number of the draw, as on the wire.
        whole: Shape of the tensor that the box is in.
        start: The box's first index in each dim of `whole`.
    """

    seed: int
    draw: int
    whole: Size | None = None
    start: Size | None = None

    @property
    def words(self) -> tuple[int, int]:
        """Seed and draw as unsigned numbers of 64 bits."""
        return self.seed % 2**64, self.draw % 2**64

    def box(self, size: Size) -> tuple[Size, Size]:
        """Shape of the whole tensor, and the start in it of a box of `size`."""
        if self.whole is None or self.start is None:
            return size, (0,) * len(size)
        return self.whole, self.start
