"""Workers by ssh: one connection a host, on which one process forks that host's workers.

Nothing is copied: GT and torch are installed there. The token goes by the connection's input, which
stays open as long as the launch: when it ends, the workers do.
"""

from __future__ import annotations

import shlex

from gt.launch.engine import Attached, Command, LaunchError, Plan

# Nobody can answer a prompt: there is no terminal behind the connection.
OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")


def _commands(plan: Plan) -> list[Command]:
    if not plan.hosts:
        raise LaunchError("--on ssh needs --hosts HOST[:WORKERS],… or --hosts-file FILE")
    commands, first = [], 0
    for host in plan.hosts:
        remote = _remote(plan, first, host.workers)
        words = ("ssh", *plan.options, *OPTIONS, host.name, remote)
        commands += [Command(label=f"ssh {host.name}", words=words, takes_token=True)]
        first += host.workers
    return commands


def _remote(plan: Plan, first: int, count: int) -> str:
    """Command for one host, valid in any shell."""
    variables = {"GT_ADDRESS": plan.address, **plan.environment}
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    words = ["--count", str(count), "--id", str(first), "--end-with-input"]
    steps = [
        "IFS= read -r GT_TOKEN",
        "export GT_TOKEN",
        *exports,
        f"exec {shlex.join(plan.worker(*words))}",
    ]
    return f"exec sh -c {shlex.quote(' && '.join(steps))}"


ENGINE = Attached(
    name="ssh",
    summary="workers on --hosts, by ssh without a password",
    needs=("ssh",),
    commands=_commands,
    takes_hosts=True,
)
