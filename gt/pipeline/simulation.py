"""How long a plan takes, and how long ranks are idle: arithmetic on costs, which runs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gt.pipeline.plans import Costs, Plan
from gt.pipeline.schedules import Unit

STEADY_STEPS = 6
"""Steps behind one another until each begins a period behind the one before."""


class Work(NamedTuple):
    """What a worker did for a unit, or, without a unit, behind one: an optimizer's step."""

    step: int
    rank: int
    unit: Unit | None
    start: float
    end: float
    busy: float
    """Less than from start to end where it waited in between."""
    worker: int


@dataclass(frozen=True)
class Run:
    """What ranks did, and when: simulated or measured.

    Attributes:
        works: in any order.
        ranks: how many there are.
    """

    works: tuple[Work, ...]
    ranks: int

    def of_step(self, step: int) -> Run:
        """The units of one step, and nothing else."""
        works = (work for work in self.works if work.step == step and work.unit is not None)
        return Run(tuple(works), self.ranks)

    @property
    def length(self) -> float:
        """From the first start to the last end."""
        return max(work.end for work in self.works) - min(work.start for work in self.works)

    def busy(self, rank: int) -> float:
        """How long a rank worked: the mean of its workers."""
        works = [work for work in self.works if work.rank == rank]
        return sum(work.busy for work in works) / len({work.worker for work in works})

    def idle_shares(self) -> list[float]:
        """Of each rank the share of the length in which it did not work."""
        return [1.0 - self.busy(rank) / self.length for rank in range(self.ranks)]

    @property
    def idle_share(self) -> float:
        """Of all ranks: the bubble."""
        return sum(self.idle_shares()) / self.ranks

    def steady_idle_shares(self, first: int, last: int) -> list[float]:
        """Of each rank the same where steps follow each other: from its start of one to that of
        another, with all that it did, and not only the units.

        Args:
            first: a step.
            last: a later one, which is not counted.
        """
        shares = []
        for rank in range(self.ranks):
            works = [work for work in self.works if work.rank == rank]
            begin, end = (
                min(work.start for work in works if work.step == step) for step in (first, last)
            )
            inside = (work.busy for work in works if first <= work.step < last)
            workers = len({work.worker for work in works})
            shares.append(1.0 - sum(inside) / workers / (end - begin))
        return shares


def peak(plan: Plan, rank: int) -> float:
    """The most micro-batches of all its stages that a rank holds, from F to the end of backward."""
    last = "W" if plan.schedule.splits else "B"
    held = most = 0
    for stage, _, kind in plan.of_rank(rank):
        if 0 <= stage < plan.stages:
            held += (kind == "F") - (kind == last)
            most = max(most, held)
    return most / plan.schedule.chunks


def simulate(plan: Plan, costs: Costs | None = None, *, steps: int = 1) -> Run:
    """A plan executed strictly in its order, a rank's next step as soon as it has ended one.

    Args:
        plan: in whose order.
        costs: the plan's own if not given.
        steps: how many, behind one another.
    """
    return Run(tuple(_works(plan, costs or plan.costs, steps)), plan.ranks)


def steady_step(plan: Plan, costs: Costs | None = None) -> float:
    """How long a step takes where steps follow each other and nothing waits for all of one."""
    ends = [0.0] * STEADY_STEPS
    for work in simulate(plan, costs, steps=STEADY_STEPS).works:
        ends[work.step] = max(ends[work.step], work.end)
    half = STEADY_STEPS // 2
    return (ends[-1] - ends[-1 - half]) / half


def steady_idle_share(plan: Plan, costs: Costs | None = None) -> float:
    """The bubble where steps follow each other."""
    run = simulate(plan, costs)
    busy = sum(run.busy(rank) for rank in range(plan.ranks))
    return 1.0 - busy / (plan.ranks * steady_step(plan, costs))


def _works(plan: Plan, costs: Costs, steps: int) -> Iterator[Work]:
    free = [0.0] * plan.ranks
    for step in range(steps):
        ends: dict[Unit, float] = {}
        for unit in plan.order:
            ranks = plan.ranks_of(unit.stage)
            ready = 0.0
            for needed in plan.needs(unit):
                moves = plan.ranks_of(needed.stage) != ranks
                ready = max(ready, ends[needed] + (costs.transfer if moves else 0.0))
            for rank in ranks:
                start = max(free[rank], ready)
                free[rank] = start + plan.cost(unit, costs)
                yield Work(step, rank, unit, start, free[rank], free[rank] - start, rank)
            ends[unit] = max(free[rank] for rank in ranks)
