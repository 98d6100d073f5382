"""Workers by torchrun on this machine, for those whose templates end with it."""

from __future__ import annotations

from gt.launch.engine import Attached, Command, Plan


def _commands(plan: Plan) -> list[Command]:
    words = ["torchrun", "--nproc-per-node", str(plan.workers), *plan.options]
    words += ["--no-python", *plan.one_worker()]
    return [Command(label="torchrun", words=tuple(words))]


ENGINE = Attached(
    name="torchrun",
    summary="workers by torchrun on this machine",
    needs=("torchrun",),
    commands=_commands,
)
