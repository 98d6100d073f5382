"""How a backend moves a collective itself, instead of giving its bytes to the worker's loop.

The members of such a collective talk in rounds: each says a word (some bytes, fewer than 4,000) to
all the others, and goes on with what they have said. The loop carries the words, knows who has
failed, and keeps the memory that is lent; `crates/worker/src/ways.rs` is its side of this.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

Value = TypeVar("Value")
Landed_co = TypeVar("Landed_co", covariant=True)

# Rows of elements in a value's contiguous memory: first element, rows, elements of a row, and from
# one row's start to the next's.
Stretch = tuple[int, int, int, int]
# A fold's name, a stretch of each member's operand in the group's order, and where in our result.
Folding = tuple[str, list[Stretch], Stretch]
# A member's place, whether it is from its result (once that is folded) instead of its operand, from
# where, and where in our result.
Pull = tuple[int, bool, Stretch, Stretch]
# From our operand to our result; what is folded; what is copied; whether others read our result
# too, as soon as it is folded.
Work = tuple[tuple[Stretch, Stretch] | None, Folding | None, list[Pull], bool]
# Whether it is the last word, after which the result may be asked for; and the word. None: by bytes
# after all. Only what all members have heard alike may decide that.
Turn = tuple[bool, bytes] | None


class Joint(Protocol[Landed_co]):
    """Our part in one collective. It keeps the values that it works on."""

    def hear(self, words: Sequence[bytes], work: Work | None) -> Turn:
        """Goes on with what all have said in a round, in the group's order, ourselves among them.

        Args:
            words: what they said; each is as `offer` or the last `hear` returned it there.
            work: after the first round, what is to be read of whose memory.
        """

    def land(self) -> Landed_co | None:
        """From now on the result is used; what takes its place, if it is another value."""

    def part(self, words: Sequence[bytes | None]) -> None:
        """The end, well or not: from now on the memory that was lent may be written to.

        Args:
            words: the last that were heard, None for members that have failed or are gone.
        """


class PolledJoint(Joint[Landed_co], Protocol[Landed_co]):
    """Our part by a process group, whose work is asked again and again whether it is over."""

    def is_over(self) -> bool:
        """Whether the result can be had, or never will be; `land` raises then."""

    def lose(self, member: int) -> None:
        """That member is gone.

        Args:
            member: the worker's index.
        """


# (operator, attributes, tag, members in the group's order, our place among them, operand, result)
# -> our part and our first word, or None where it cannot be: then all go by bytes.
Offer = Callable[
    [str, dict[str, object], int, list[int], int, Value | None, Value | None],
    tuple[Joint[Value], bytes] | None,
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Way(Generic[Value]):
    """One way.

    Args:
        domain: who can go this way with us: the workers that say the same.
        offer: begins our part of one collective.
    """

    domain: str
    offer: Offer[Value]
