"""Times at which workers executed a pipeline's units, from the records beside an
instruction log.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from gt import _core
from gt.compat import debug
from gt.errors import InvalidUse
from gt.pipeline.plans import Costs, Plan
from gt.pipeline.schedules import Unit
from gt.pipeline.simulation import Run, Work
from gt.pipeline.training import Mark
from gt.sessions.session import synchronize
from gt.tools.executions import Execution, executions

WAIT_MS = 0.5
"""A shorter pause between two instructions of a unit is not drawn."""
# Key: worker, mark, and whether the instructions belong to its unit or follow it.
Groups: TypeAlias = dict[tuple[int, Mark, bool], list[Execution]]


def measured(log: str, plan: Plan, marks: Sequence[Mark]) -> Run:
    """Units of a plan as executed by workers; waits until everything emitted has run.

    A unit is one `Work`, or several if a worker waited inside it; its busy time is that of its
    instructions. Collectives do not count as work: they run beside the computation.

    Args:
        log: path of the instruction log.
        plan: plan in whose order the units were emitted.
        marks: marks of the pipeline.

    Raises:
        InvalidUse: there are no records.
    """
    synchronize()
    debug.get_worker_stats()  # workers write their records before they answer
    families = {name: family for name, family, *_ in _core.op_table()}
    firsts = [mark.first for mark in marks]
    groups: Groups = defaultdict(list)
    for one in executions(log):
        place = bisect.bisect_right(firsts, one.number) - 1
        if place >= 0 and families[one.operator] != "collective":
            is_inside = one.number < marks[place].end
            groups[one.worker, marks[place], is_inside].append(one)
    if not groups:
        raise InvalidUse(f"no worker has recorded anything beside {log}")
    return Run(tuple(_works(groups, plan)), plan.ranks)


def _works(groups: Groups, plan: Plan) -> Iterator[Work]:
    rank_of = _ranks(groups, plan)
    for (worker, mark, is_inside), instructions in groups.items():
        unit = mark.unit if is_inside else None
        for part in _between_waits(instructions):
            start, end = part[0].start, part[-1].end
            yield Work(mark.step, rank_of[worker], unit, start, end, _busy(part), worker)


def _between_waits(instructions: Sequence[Execution]) -> Iterator[list[Execution]]:
    """Instructions of one unit, parted where the worker waited in between."""
    part: list[Execution] = []
    for one in instructions:
        if part and one.start - part[-1].end > WAIT_MS:
            yield part
            part = []
        part.append(one)
    yield part


def _busy(instructions: Sequence[Execution]) -> float:
    return sum(one.end - one.start for one in instructions)


def _ranks(groups: Groups, plan: Plan) -> dict[int, int]:
    """Rank of each worker: the one for whose stages, spread ones included in parts, it worked
    longest.
    """
    times: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for (worker, mark, _), instructions in groups.items():
        ranks = plan.ranks_of(mark.unit.stage)
        for rank in ranks:
            times[worker][rank] += _busy(instructions) / len(ranks)
    return {worker: max(of, key=lambda rank: of[rank]) for worker, of in times.items()}


def costs(run: Run) -> Costs:
    """Mean durations of the units over micro-batches and a rank's workers: input of `simulate`."""
    whole: dict[tuple[int, int, Unit], float] = defaultdict(float)
    for work in run.works:
        if work.unit is not None:
            whole[work.step, work.worker, work.unit] += work.busy
    times: dict[tuple[int, str], list[float]] = defaultdict(list)
    for (_, _, unit), busy in whole.items():
        times[unit.stage, unit.kind].append(busy)
    means = {key: sum(of) / len(of) for key, of in times.items()}

    def of(kind: str) -> dict[int, float]:
        return {stage: mean for (stage, other), mean in means.items() if other == kind}

    return Costs(forward=of("F"), backward=of("B"), weights=of("W"))
