"""Interface of a backend that moves a collective itself, without giving its bytes to the worker's
loop.

The members of such a collective meet in rounds: each sends a payload (some bytes, fewer than 4,000)
to all the others, and goes on with what they have sent. The loop carries the payloads, knows who
has failed, and keeps the borrowed memory; `crates/worker/src/backend.rs` is its side of this.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

Value = TypeVar("Value")
Result_co = TypeVar("Result_co", covariant=True)

# Rows of elements in a value's contiguous memory: first element, number of rows, elements of a row,
# distance between the starts of two rows.
StridedRange = tuple[int, int, int, int]
# A reduction: its name, a range of each member's operand in the group's order, and the range of our
# result.
Reduction = tuple[str, list[StridedRange], StridedRange]
# A copy: the member's place, True to read its result (once that is reduced) instead of its operand,
# the range there, and the range of our result.
Pull = tuple[int, bool, StridedRange, StridedRange]
# Copy from our operand to our result; reduction; copies from others; True if others read our result
# too, as soon as it is reduced.
DirectReads = tuple[tuple[StridedRange, StridedRange] | None, Reduction | None, list[Pull], bool]
# True with the last payload, after which the result may be asked for; and the payload. None: by the
# loop's messages after all. The decision may rest only on what all members received alike.
Turn = tuple[bool, bytes] | None


class Rendezvous(Protocol[Result_co]):
    """Our part in one collective. It keeps the values that it works on."""

    def negotiate(self, payloads: Sequence[bytes], reads: DirectReads | None) -> Turn:
        """Goes on with the payloads of all members in a round, in the group's order, with our own.

        Args:
            payloads: each as the backend's `rendezvous` or the last `negotiate` returned it.
            reads: after the first round, the ranges to read and the members that hold them.
        """

    def is_over(self) -> bool:
        """True once the result is available, or never will be: `finish` raises then."""

    def lose(self, peer: int) -> None:
        """Reports that a member is gone before the collective is over.

        Args:
            peer: the worker's index.
        """

    def finish(self) -> Result_co | None:
        """Makes the result usable from now on; returns the value in its place if it is
        another one.
        """

    def end(self, payloads: Sequence[bytes | None]) -> None:
        """Ends the collective, well or not: borrowed memory may be written to from now on.

        Args:
            payloads: the last ones received, None for members that have failed or are gone.
        """


# (operator, attributes, tag, members in the group's order, our place among them, operand, result)
# -> our part and our first payload, or None if this member cannot take part: then all go by
# messages.
BeginRendezvous = Callable[
    [str, dict[str, object], int, list[int], int, Value | None, Value | None],
    tuple[Rendezvous[Value], bytes] | None,
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectiveBackend(Generic[Value]):
    """One backend of collectives.

    Args:
        domain: a word that workers share if they can take part together.
        rendezvous: begins our part of one collective.
    """

    domain: str
    rendezvous: BeginRendezvous[Value]
