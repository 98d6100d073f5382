"""Duration of a plan and the ranks' idle times: arithmetic on costs, which runs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gt.pipeline.plans import Costs, Plan
from gt.pipeline.schedules import Unit

STEADY_STEPS = 6
"""Consecutive steps after which each begins one period after the previous one."""


class Work(NamedTuple):
    """Work of a worker for a unit; without a unit, work after one: an optimizer's step."""

    step: int
    rank: int
    unit: Unit | None
    start: float
    end: float
    busy: float
    """Busy time: less than from start to end if the worker waited in between."""
    worker: int


@dataclass(frozen=True)
class Run:
    """Works of the ranks with their times: simulated or measured.

    Attributes:
        works: in any order.
        ranks: number of ranks.
    """

    works: tuple[Work, ...]
    ranks: int

    def of_step(self, step: int) -> Run:
        """The units of one step, and nothing else."""
        works = (work for work in self.works if work.step == step and work.unit is not None)
        return Run(tuple(works), self.ranks)

    @property
    def length(self) -> float:
        """Time from the first start to the last end."""
        return max(work.end for work in self.works) - min(work.start for work in self.works)

    def busy(self, rank: int) -> float:
        """Busy time of a rank: the mean of its workers."""
        works = [work for work in self.works if work.rank == rank]
        return sum(work.busy for work in works) / len({work.worker for work in works})

    def idle_shares(self) -> list[float]:
        """Idle share of each rank: the fraction of the run's length in which it did not work."""
        return [1.0 - self.busy(rank) / self.length for rank in range(self.ranks)]

    @property
    def idle_share(self) -> float:
        """Idle share of all ranks: the bubble."""
        return sum(self.idle_shares()) / self.ranks

    def steady_idle_shares(self, first: int, last: int) -> list[float]:
        """Idle share of each rank in steps that follow each other: from its start of one step to
        its start of another, with all of its work and not only the units.

        Args:
            first: number of the first step.
            last: number of the step that ends the range, which is not counted.
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
    """Peak number of micro-batches over all its stages that a rank holds, from F to the end of
    backward.
    """
    last = "W" if plan.schedule.splits else "B"
    held = most = 0
    for stage, _, kind in plan.of_rank(rank):
        if 0 <= stage < plan.stages:
            held += (kind == "F") - (kind == last)
            most = max(most, held)
    return most / plan.schedule.chunks


def simulate(plan: Plan, costs: Costs | None = None, *, steps: int = 1) -> Run:
    """Simulate a plan strictly in its order; a rank begins its next step as soon as it ends one.

    Args:
        plan: plan to simulate.
        costs: durations; by default those of the plan.
        steps: number of consecutive steps.
    """
    return Run(tuple(_works(plan, costs or plan.costs, steps)), plan.ranks)


def steady_step(plan: Plan, costs: Costs | None = None) -> float:
    """Duration of a step among steps that follow each other, without a wait for the
    whole of one.
    """
    ends = [0.0] * STEADY_STEPS
    for work in simulate(plan, costs, steps=STEADY_STEPS).works:
        ends[work.step] = max(ends[work.step], work.end)
    half = STEADY_STEPS // 2
    return (ends[-1] - ends[-1 - half]) / half


def steady_idle_share(plan: Plan, costs: Costs | None = None) -> float:
    """The bubble of consecutive steps."""
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
