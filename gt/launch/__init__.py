"""Launchers: existing engines that start workers, which call a dispatcher and need nothing else.

A file for each engine says what it submits (engine.py: a plan in, commands or a text out); head.py
runs dispatcher, commands and program, watch.py supervises processes, stay.py keeps a cluster.
Distributions add engines by the entry-point group `gt.launchers`: an `Engine`, under its name.
"""

from __future__ import annotations

import importlib
import importlib.metadata

from gt.launch.engine import (
    Attached,
    Command,
    Engine,
    Host,
    LaunchError,
    Plan,
    Submitted,
)

__all__ = ["Attached", "Command", "Engine", "Host", "LaunchError", "Plan", "Submitted"]

GROUP = "gt.launchers"
# Name to module and variable; imported when it is asked for.
ENGINES = {
    "local": ("gt.launch.local", "ENGINE"),
    "ssh": ("gt.launch.ssh", "ENGINE"),
    "slurm": ("gt.launch.slurm", "ENGINE"),
    "srun": ("gt.launch.slurm", "STEP"),
    "ray": ("gt.launch.ray", "ENGINE"),
    "k8s": ("gt.launch.kubernetes", "ENGINE"),
    "torchrun": ("gt.launch.torchrun", "ENGINE"),
    "mpi": ("gt.launch.mpi", "ENGINE"),
    "elsewhere": ("gt.launch.elsewhere", "ENGINE"),
}


def engine(name: str) -> Engine:
    """The engine of that name, one of GT's or one that a distribution adds.

    Raises:
        LaunchError: there is none, or what was added is no engine.
    """
    if name in ENGINES:
        module, variable = ENGINES[name]
        described = getattr(importlib.import_module(module), variable)
    elif name in (others := added()):
        described = others[name].load()
    else:
        names = ", ".join([*ENGINES, *others])
        raise LaunchError(f"--on {name}: expected one of {names}")
    if not isinstance(described, Engine):
        raise LaunchError(f"--on {name}: {GROUP} has {described!r}, which is no gt.launch.Engine")
    return described


def added() -> dict[str, importlib.metadata.EntryPoint]:
    """Engines of other distributions, by name."""
    points = importlib.metadata.entry_points(group=GROUP)
    return {point.name: point for point in points if point.name not in ENGINES}
