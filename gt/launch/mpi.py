"""Workers by mpirun, on this machine or on hosts; nothing calls MPI."""

from __future__ import annotations

from gt.launch.engine import Attached, Command, LaunchError, Plan

# Options of each mpirun that name the variables for other hosts, and the hosts to run on.
DIALECTS = {
    "openmpi": ("-x", "--host"),
    "mpich": ("-genvlist", "-hosts"),
}
SENT = ("GT_ADDRESS", "GT_TOKEN")


def _commands(plan: Plan) -> list[Command]:
    dialect = plan.settings["dialect"]
    if dialect not in DIALECTS:
        raise LaunchError(f"--set dialect={dialect}: expected one of {', '.join(DIALECTS)}")
    variable, hosts = DIALECTS[dialect]
    names = [*SENT, *plan.environment]
    words = ["mpirun", "-n", str(plan.workers)]
    # Passed by name, so that no value (above all the token) appears on a command line.
    if dialect == "mpich":
        words += [variable, ",".join(names)]
    else:
        words += [word for name in names for word in (variable, name)]
    if plan.hosts:
        words += [hosts, ",".join(f"{host.name}:{host.workers}" for host in plan.hosts)]
    words += [*plan.options, *plan.one_worker()]
    return [Command(label="mpirun", words=tuple(words))]


ENGINE = Attached(
    name="mpi",
    summary="workers by mpirun, here or on --hosts",
    needs=("mpirun",),
    settings={"dialect": "openmpi"},
    commands=_commands,
    takes_hosts=True,
)
