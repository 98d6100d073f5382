"""Places in a generator's stream from which an instruction draws, for both backends. No value is
made here.
"""

from __future__ import annotations

from typing import NamedTuple

Size = tuple[int, ...]


class Place(NamedTuple):
    """A draw, and which box of its values: without `whole` and `start` all of them.

    Args:
        seed: As on the wire, where integers are signed; a seed is any 64 bits.
        draw: Likewise.
        whole: The shape of the tensor that the box is in.
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
        """The shape of the whole tensor, and where in it a box of `size` begins."""
        if self.whole is None or self.start is None:
            return size, (0,) * len(size)
        return self.whole, self.start
