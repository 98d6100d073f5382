"""Pipelines: schedules as orders of the same instructions, and the idle times of ranks in them.

`schedules.py` has a function for each schedule, `plans.py` their common parts, `simulation.py` the
arithmetic of bubbles, `training.py` a step in a plan's order, `measurement.py` the times at which
workers executed it, and `picture.py` draws them.
"""

from gt.config.scopes import schedule as configured
from gt.pipeline.measurement import costs, measured
from gt.pipeline.picture import perfetto, png
from gt.pipeline.plans import EMBEDDING, Costs, Plan, plan
from gt.pipeline.schedules import SCHEDULES, Schedule, Unit
from gt.pipeline.simulation import (
    Run,
    Work,
    peak,
    simulate,
    steady_idle_share,
    steady_step,
)
from gt.pipeline.training import Mark, Pipeline

__all__ = [
    "EMBEDDING",
    "SCHEDULES",
    "Costs",
    "Mark",
    "Pipeline",
    "Plan",
    "Run",
    "Schedule",
    "Unit",
    "Work",
    "configured",
    "costs",
    "measured",
    "peak",
    "perfetto",
    "plan",
    "png",
    "simulate",
    "steady_idle_share",
    "steady_step",
]


def __dir__() -> list[str]:
    """Lists the public names; imports for the package's own use are left out."""
    return __all__
