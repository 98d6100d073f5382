"""Pipeline schedules: the order in which each rank works on its stages' micro-batches.

A schedule is an order of the same instructions, so no schedule changes a result. Each function
yields the units of one rank; plans.py has the common parts (dependencies, spread stages).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from gt.errors import InvalidValue

Kind: TypeAlias = Literal["F", "B", "W"]
"""Forward; backward to the stage's input; backward to the stage's weights."""


class Unit(NamedTuple):
    """One stage's work on one micro-batch; `F3` of stage 1 is `Unit(1, 3, "F")`."""

    stage: int
    microbatch: int
    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A row of the table of schedules.

    Args:
        title: name in papers.
        order: function from the rank, the number of ranks and the number of micro-batches to the
            rank's units.
        chunks: number of stages per rank.
        splits: whether the backward is split into B and W; otherwise B is the whole backward, and
            there is no W.
        is_v: whether the second half of the stages is on the ranks in reverse order, so that the
            last stage is on the rank of the first.
    """

    title: str
    order: Callable[[int, int, int], Iterator[Unit]]
    chunks: int = 1
    splits: bool = False
    is_v: bool = False

    def stages(self, ranks: int) -> int:
        """Number of stages on `ranks` ranks."""
        return self.chunks * ranks

    def rank(self, stage: int, ranks: int) -> int:
        """The rank that has a stage."""
        lap, place = divmod(stage, ranks)
        return ranks - 1 - place if self.is_v and lap % 2 else place


def gpipe(rank: int, ranks: int, microbatches: int) -> Iterator[Unit]:
    """All forwards, then all backwards: the simplest schedule; it holds all activations."""
    del ranks
    for kind in ("F", "B"):
        yield from (Unit(rank, number, kind) for number in range(microbatches))


def one_forward_one_backward(rank: int, ranks: int, microbatches: int) -> Iterator[Unit]:
    """1F1B: the pipeline is filled, then each forward has a backward."""
    warm_up = min(ranks - 1 - rank, microbatches)
    yield from _alternating(units("F", rank, microbatches), units("B", rank, microbatches), warm_up)


def interleaved(rank: int, ranks: int, microbatches: int) -> Iterator[Unit]:
    """1F1B of two stages a rank, which take turns with a group of micro-batches each."""
    whole = -(-microbatches // ranks) * ranks  # the order consists of full groups
    groups = [range(start, start + ranks) for start in range(0, whole, ranks)]
    chunks = [rank, ranks + rank]
    forwards = [Unit(s, i, "F") for group in groups for s in chunks for i in group]
    backwards = [Unit(s, i, "B") for group in groups for s in reversed(chunks) for i in group]
    warm_up = min(2 * (ranks - 1 - rank) + ranks, len(forwards))
    yield from _only(_alternating(forwards, backwards, warm_up), microbatches)


def zb_h1(rank: int, ranks: int, microbatches: int) -> Iterator[Unit]:
    """1F1B with a split backward: W fills idle time, and no more activations are held."""
    warm_up = min(ranks - 1 - rank, microbatches)
    forwards, backwards = units("F", rank, microbatches), units("B", rank, microbatches)
    weights = iter(units("W", rank, microbatches))
    for unit in _alternating(forwards, backwards, warm_up):
        yield unit
        # Later ranks begin backwards sooner: they delay W until all hold the same number of
        # activations.
        if unit.kind == "B" and unit.microbatch >= rank:
            yield next(weights)
    yield from weights


def zb_v(rank: int, ranks: int, microbatches: int) -> Iterator[Unit]:
    """Two stages a rank in a V, backward split: with equal F, B, W no rank idles between steps."""
    whole = max(microbatches, 2 * ranks)  # the order is that of a full pipeline
    yield from _only(_zb_v(rank, ranks, whole), microbatches)


def _zb_v(rank: int, ranks: int, microbatches: int) -> Iterator[Unit]:
    first, second = rank, 2 * ranks - 1 - rank
    down, up = (iter(units("F", stage, microbatches)) for stage in (first, second))
    back, last = (iter(units("B", stage, microbatches)) for stage in (second, first))
    put_off: list[Unit] = []

    def weights(unit: Unit) -> Unit:
        return unit._replace(kind="W")

    yield from itertools.islice(down, 2 * (ranks - rank) - 1)
    for _ in range(rank):
        yield from (next(up), next(down))
    for _ in range(ranks - rank):
        yield from (next(up), unit := next(back), weights(unit))
    for forward in up:
        yield from itertools.islice(down, 1)
        yield from (unit := next(last), weights(unit), forward, unit := next(back), weights(unit))
    for unit in back:
        yield from (other := next(last), unit)
        put_off += [weights(other), weights(unit)]
    for unit in last:
        yield unit
        put_off.append(weights(unit))
        yield put_off.pop(0)
    yield from put_off


def _alternating(
    forwards: Iterable[Unit], backwards: Iterable[Unit], warm_up: int
) -> Iterator[Unit]:
    """`warm_up` forwards, then one of each in turn, then the remaining backwards."""
    forwards, backwards = iter(forwards), iter(backwards)
    yield from itertools.islice(forwards, warm_up)
    for unit in forwards:
        yield from (unit, next(backwards))
    yield from backwards


def _only(units: Iterable[Unit], microbatches: int) -> Iterator[Unit]:
    """The units of the first micro-batches: a valid order stays valid without the others."""
    return (unit for unit in units if unit.microbatch < microbatches)


def units(kind: Kind, stage: int, microbatches: int) -> list[Unit]:
    """Units of one kind of a stage, for all micro-batches."""
    return [Unit(stage, number, kind) for number in range(microbatches)]


SCHEDULES = {
    "gpipe": Schedule(title="GPipe", order=gpipe),
    "1f1b": Schedule(title="1F1B", order=one_forward_one_backward),
    "zb-h1": Schedule(title="ZB-H1", order=zb_h1, splits=True),
    "zbv": Schedule(title="ZB-V", order=zb_v, chunks=2, splits=True, is_v=True),
    "interleaved": Schedule(title="interleaved 1F1B", order=interleaved, chunks=2),
}
"""By the names of `--schedule` and of a layout file's `schedule:`."""


def named(name: str) -> Schedule:
    """The schedule of a name.

    Raises:
        InvalidValue: the schedule does not exist.
    """
    if name not in SCHEDULES:
        raise InvalidValue(f"no schedule {name!r}: expected one of {', '.join(SCHEDULES)}")
    return SCHEDULES[name]
