"""A schedule for given numbers of ranks and micro-batches: each rank's order, and one order of all.

A stage that is spread over all ranks (an embedding, an output head) is not part of the schedules'
orders: its units are inserted where a rank is free, according to the costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gt.errors import InvalidValue
from gt.pipeline.schedules import Kind, Schedule, Unit, named, units

EMBEDDING = -1
"""The number of a spread stage before the first one."""
AHEAD = 2
"""Micro-batches by which a spread embedding runs ahead, so that no rank waits for others' rows."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Durations of units.

    Args:
        forward: duration of a stage's forward, by the stage's number; a missing one is 1 / chunks.
        backward: duration of the gradient of a stage's input.
        weights: duration of the gradient of a stage's weights.
        transfer: duration of a transfer from a stage to the next one, while the ranks go on.
    """

    forward: Mapping[int, float] = field(default_factory=dict)
    backward: Mapping[int, float] = field(default_factory=dict)
    weights: Mapping[int, float] = field(default_factory=dict)
    transfer: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Work of each rank in a step, in order.

    Args:
        schedule: a row of the table of schedules.
        ranks: number of workers, or groups of workers, that have stages.
        microbatches: number of micro-batches in a step.
        embedding: True for a stage before the first one that is spread over all ranks.
        head: True for a stage behind the last one that is spread over all ranks.
        costs: durations by which the units of spread stages are placed.
    """

    schedule: Schedule
    ranks: int
    microbatches: int
    embedding: bool = False
    head: bool = False
    costs: Costs = field(default_factory=Costs)
    order: tuple[Unit, ...] = ()
    """All units, each after those that it needs; a rank runs its own in this order."""

    @property
    def stages(self) -> int:
        """Number of stages, without those that are spread over all ranks."""
        return self.schedule.stages(self.ranks)

    def ranks_of(self, stage: int) -> tuple[int, ...]:
        """The ranks that have a stage."""
        if 0 <= stage < self.stages:
            return (self.schedule.rank(stage, self.ranks),)
        return tuple(range(self.ranks))

    def of_rank(self, rank: int) -> list[Unit]:
        """The units of a rank, in their order."""
        return [unit for unit in self.order if rank in self.ranks_of(unit.stage)]

    def needs(self, unit: Unit) -> Iterator[Unit]:
        """The units whose results a unit reads."""
        stage, number, kind = unit
        first = EMBEDDING if self.embedding else 0
        last = self.stages if self.head else self.stages - 1
        if kind == "F":
            if stage > first:
                yield Unit(stage - 1, number, "F")
            return
        yield Unit(stage, number, "F")
        if stage < last and (kind == "B" or stage == EMBEDDING):
            yield Unit(stage + 1, number, "B")
        elif kind == "W":
            yield Unit(stage, number, "B")

    def cost(self, unit: Unit, costs: Costs) -> float:
        """Duration of a unit on each of its ranks."""
        usual = 1.0 / self.schedule.chunks
        weights = costs.weights.get(unit.stage, usual)
        if unit.kind == "F":
            return costs.forward.get(unit.stage, usual)
        if unit.kind == "W":
            return weights
        backward = costs.backward.get(unit.stage, usual)
        return backward if self.schedule.splits else backward + weights

    def phases(self, rank: int = 0) -> tuple[int, int, int]:
        """Numbers of a rank's forwards before its steady phase, of forwards in it, and of backwards
        behind the last forward."""
        own = (unit for unit in self.of_rank(rank) if 0 <= unit.stage < self.stages)
        kinds = [unit.kind for unit in own if unit.kind != "W"]
        warm_up = kinds.index("B") - 1
        cool_down = kinds[::-1].index("F") - 1
        return warm_up, kinds.count("F") - warm_up, cool_down


def plan(
    schedule: str,
    ranks: int,
    microbatches: int,
    *,
    embedding: bool = False,
    head: bool = False,
    costs: Costs | None = None,
) -> Plan:
    """The plan of a schedule for given numbers of ranks and micro-batches.

    Args:
        schedule: its name: gpipe, 1f1b, zb-h1, zbv or interleaved.
        ranks: number of workers, or groups of workers, that have stages.
        microbatches: number of micro-batches in a step.
        embedding: True for a stage before the first one that is spread over all ranks.
        head: True for a stage behind the last one that is spread over all ranks.
        costs: durations of the units; 1 / (stages of a rank) each if not given.

    Raises:
        InvalidValue: no such schedule, or no ranks or micro-batches.
    """
    if ranks < 1 or microbatches < 1:
        raise InvalidValue(f"a schedule of {ranks} ranks and {microbatches} micro-batches")
    empty = Plan(
        schedule=named(schedule), ranks=ranks, microbatches=microbatches, embedding=embedding,
        head=head, costs=costs or Costs(),
    )  # fmt: skip
    merged = replace(empty, order=tuple(_Merge(empty).units()))
    return replace(merged, order=tuple(_readers_first(merged)))


def _readers_first(plan: Plan) -> Iterator[Unit]:
    """Units in an order that is the same on each rank, each directly after its operands if its
    ranks allow.

    A rank sends a result to another one at the position of the reader, after everything emitted
    earlier for the rank.
    """
    queues = [deque(plan.of_rank(rank)) for rank in range(plan.ranks)]
    place: dict[Unit, int] = {}

    def is_next(unit: Unit) -> bool:
        heads = (queues[rank][0] == unit for rank in plan.ranks_of(unit.stage))
        return all(heads) and all(needed in place for needed in plan.needs(unit))

    while heads := [queue[0] for queue in queues if queue and is_next(queue[0])]:
        latest = [max((place[one] for one in plan.needs(unit)), default=-1) for unit in heads]
        unit = heads[latest.index(max(latest))]
        for rank in plan.ranks_of(unit.stage):
            queues[rank].popleft()
        place[unit] = len(place)
        yield unit


class _Merge:
    """The ranks' orders merged by start time; spread stages take their turn on all
    ranks at once.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        ranks = range(plan.ranks)
        own = (plan.schedule.order(rank, plan.ranks, plan.microbatches) for rank in ranks)
        # Among units that could begin at the same time, the first begins.
        self._queues = [deque(units) for units in (*_spread_units(plan), *own)]
        self._free = [0.0 for _ in ranks]
        self._spans: dict[Unit, tuple[float, float]] = {}

    def units(self) -> Iterable[Unit]:
        """All units, in their order."""
        while queues := [queue for queue in self._queues if queue]:
            starts = [
                (start, queue) for queue in queues if (start := self._start(queue[0])) is not None
            ]
            assert starts, [queue[0] for queue in queues]  # a rank's order is not executable
            start, queue = min(starts, key=lambda one: one[0])
            self._place(queue.popleft(), start)
        return self._spans

    def _start(self, unit: Unit) -> float | None:
        """Earliest start on the first of its ranks; None until the units that it needs
        are placed.
        """
        ranks = self.plan.ranks_of(unit.stage)
        start = min(self._free[rank] for rank in ranks)
        for needed in self.plan.needs(unit):
            if needed not in self._spans:
                return None
            start = max(start, self._spans[needed][1])
        beside = _placed_beside(self.plan, unit)
        if beside is not None:
            return max(start, self._spans[beside][0]) if beside in self._spans else None
        return start

    def _place(self, unit: Unit, start: float) -> None:
        ranks = self.plan.ranks_of(unit.stage)
        for rank in ranks:
            self._free[rank] = max(self._free[rank], start) + self.plan.cost(unit, self.plan.costs)
        self._spans[unit] = (start, max(self._free[rank] for rank in ranks))


def _spread_units(plan: Plan) -> Iterator[list[Unit]]:
    """The units of each kind of the stages that are spread."""
    backward: tuple[Kind, ...] = ("B", "W") if plan.schedule.splits else ("B",)
    if plan.embedding:  # its inputs have no gradients
        yield units("F", EMBEDDING, plan.microbatches)
        yield units(backward[-1], EMBEDDING, plan.microbatches)
    if plan.head:
        yield units("F", plan.stages, plan.microbatches)
        yield from (units(kind, plan.stages, plan.microbatches) for kind in backward)


def _placed_beside(plan: Plan, unit: Unit) -> Unit | None:
    """The unit with which a spread one shares its turn, though it does not read its result."""
    if unit.stage == EMBEDDING and unit.kind == "F" and unit.microbatch >= AHEAD:
        return Unit(0, unit.microbatch - AHEAD, "F")
    if unit.stage == plan.stages and unit.kind == "W":
        return Unit(plan.stages - 1, unit.microbatch, "B")  # which all ranks wait for
    return None
