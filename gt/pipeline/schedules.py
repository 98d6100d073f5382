"""Pipeline schedules: in which order each rank works on its stages' micro-batches.

A schedule is an order of the same instructions, so no schedule changes a result. A function for
each yields the units of one rank; what they share (dependencies, spread stages) is in plans.py.
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
        title: as papers call it.
        order: the units of a rank, given the rank, how many there are, and micro-batches.
        chunks: stages that each rank has.
        splits: the backward is B and W; without it B is the whole backward, and there is no W.
        is_v: the second half of the stages is on the ranks in reverse, the last stage where the
            first one is.
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
    """All forwards, then all backwards: the simplest, and all activations are held."""
    del ranks
    for kind in ("F", "B"):
        yield from (Unit(rank, number, kind) for number in range(microbatches))


def one_forward_one_backward(rank: int, ranks: int, microbatches: int) -> Iterator[Unit]:
    """1F1B: the pipeline is filled, then each forward has a backward."""
    warm_up = min(ranks - 1 - rank, microbatches)
    yield from _alternating(units("F", rank, microbatches), units("B", rank, microbatches), warm_up)


def interleaved(rank: int, ranks: int, microbatches: int) -> Iterator[Unit]:
    """1F1B of two stages a rank, which take turns with a group of micro-batches each."""
    whole = -(-microbatches // ranks) * ranks  # the order is one of full groups
    groups = [range(start, start + ranks) for start in range(0, whole, ranks)]
    chunks = [rank, ranks + rank]
    forwards = [Unit(s, i, "F") for group in groups for s in chunks for i in group]
    backwards = [Unit(s, i, "B") for group in groups for s in reversed(chunks) for i in group]
    warm_up = min(2 * (ranks - 1 - rank) + ranks, len(forwards))
    yield from _only(_alternating(forwards, backwards, warm_up), microbatches)


def zb_h1(rank: int, ranks: int, microbatches: int) -> Iterator[Unit]:
    """1F1B with a split backward: W fills what was idle, and no more activations are held."""
    warm_up = min(ranks - 1 - rank, microbatches)
    forwards, backwards = units("F", rank, microbatches), units("B", rank, microbatches)
    weights = iter(units("W", rank, microbatches))
    for unit in _alternating(forwards, backwards, warm_up):
        yield unit
        # Later ranks begin backwards sooner: they put off W until all hold as many activations.
        if unit.kind == "B" and unit.microbatch >= rank:
            yield next(weights)
    yield from weights


def zb_v(rank: int, ranks: int, microbatches: int) -> Iterator[Unit]:
    """Two stages a rank in a V, backward split: with equal F, B, W no rank idles between steps."""
    whole = max(microbatches, 2 * ranks)  # the order is one of a full pipeline
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
    """So many forwards, then one of each in turn, then the backwards that are left."""
    forwards, backwards = iter(forwards), iter(backwards)
    yield from itertools.islice(forwards, warm_up)
    for unit in forwards:
        yield from (unit, next(backwards))
    yield from backwards


def _only(units: Iterable[Unit], microbatches: int) -> Iterator[Unit]:
    """Those of the first micro-batches: what is left of an order that holds is one that holds."""
    return (unit for unit in units if unit.microbatch < microbatches)


def units(kind: Kind, stage: int, microbatches: int) -> list[Unit]:
    """One kind of a stage, of all micro-batches."""
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
        InvalidValue: there is none.
    """
    if name not in SCHEDULES:
        raise InvalidValue(f"no schedule {name!r}: expected one of {', '.join(SCHEDULES)}")
    return SCHEDULES[name]
