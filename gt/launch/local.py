"""Workers on this machine: one process that imports once and forks them all."""

from __future__ import annotations

from gt.launch.engine import Attached, Command, Plan


def _commands(plan: Plan) -> list[Command]:
    words = plan.worker("--count", str(plan.workers), "--id", "0", "--supervise")
    return [Command(label="workers", words=tuple(words))]


ENGINE = Attached(name="local", summary="workers on this machine", commands=_commands)
