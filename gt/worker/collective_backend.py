"""How a backend moves a collective itself, instead of giving its bytes to the worker's loop.

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

# Rows of elements in a value's contiguous memory: first element, rows, elements of a row, and from
# one row's start to the next's.
StridedRange = tuple[int, int, int, int]
# The name of a reduction, a range of each member's operand in the group's order, and where in our
# result.
Reduction = tuple[str, list[StridedRange], StridedRange]
# A member's place, whether it is from its result (once that is reduced) instead of its operand,
# from where, and where in our result.
Pull = tuple[int, bool, StridedRange, StridedRange]
# From our operand to our result; what is reduced; what is copied; whether others read our result
# too, as soon as it is reduced.
DirectReads = tuple[tuple[StridedRange, StridedRange] | None, Reduction | None, list[Pull], bool]
# Whether it is the last payload, after which the result may be asked for; and the payload. None: by
# the loop's messages after all. Only what all members have received alike may decide that.
Turn = tuple[bool, bytes] | None


class Rendezvous(Protocol[Result_co]):
    """Our part in one collective. It keeps the values that it works on."""

    def negotiate(self, payloads: Sequence[bytes], reads: DirectReads | None) -> Turn:
        """Goes on with what all have sent in a round, in the group's order, ourselves among them.

        Args:
            payloads: each as the backend's `rendezvous` or the last `negotiate` returned it.
            reads: after the first round, what is to be read of whose memory.
        """

    def is_over(self) -> bool:
        """Whether the result can be had, or never will be: `finish` raises then."""

    def lose(self, peer: int) -> None:
        """That member is gone, and the collective is not over.

        Args:
            peer: the worker's index.
        """

    def finish(self) -> Result_co | None:
        """From now on the result is used; what takes its place, if it is another value."""

    def end(self, payloads: Sequence[bytes | None]) -> None:
        """The end, well or not: from now on the memory that was borrowed may be written to.

        Args:
            payloads: the last that were received, None for members that have failed or are gone.
        """


# (operator, attributes, tag, members in the group's order, our place among them, operand, result)
# -> our part and our first payload, or None where it cannot be: then all go by messages.
BeginRendezvous = Callable[
    [str, dict[str, object], int, list[int], int, Value | None, Value | None],
    tuple[Rendezvous[Value], bytes] | None,
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectiveBackend(Generic[Value]):
    """One backend of collectives.

    Args:
        domain: who can take part with us: the workers that say the same.
        rendezvous: begins our part of one collective.
    """

    domain: str
    rendezvous: BeginRendezvous[Value]
