"""`gt env`: what a report of a fault should say about the machine, GT and its settings."""

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import sys
from collections.abc import Mapping

from gt import config
from gt.compat import version
from gt.config import variables

PACKAGES = ("torch", "numpy", "safetensors", "PyYAML", "einops")
SECRETS = {variables.TOKEN.name}
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked at, not written to


def run(*, as_json: bool) -> int:
    """Print the report.

    Returns:
        0, or 1 if a variable is invalid.
    """
    mistakes = wrong(config.with_settings())
    facts = collected() | ({"mistakes": mistakes} if mistakes else {})
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        width = max(map(len, facts))
        for name, value in facts.items():
            lines = value if isinstance(value, list) else [value]
            for place, line in enumerate(lines or ["none"]):
                print(f"{'' if place else name:{width}}  {line}")
    return 1 if mistakes else 0


def collected() -> dict[str, str | list[str]]:
    """Facts by name, without starting a worker."""
    return {
        "GT": f"{version.gt} ({version.__version__})",
        "Python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        "processor": processor(),
        "cores": f"{config.core_count()} of {os.cpu_count()}",
        "memory": gibibytes(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "shared memory": shared_memory(),
        "GPUs": str(config.gpu_count()),
        "own kernels": own_kernels(),
        "packages": [f"{name} {installed(name)}" for name in PACKAGES],
        "variables": settings(config.with_settings()),
    }


def settings(environment: Mapping[str, str]) -> list[str]:
    """GT's variables that are set, each with its default."""
    lines = []
    for variable in variables.VARIABLES:
        if word := environment.get(variable.name):
            shown = "(set)" if variable.name in SECRETS else word
            lines.append(f"{variable.name}={shown}  (default: {variable.shown_default()})")
    return lines


def wrong(environment: Mapping[str, str]) -> list[str]:
    """One line for each variable that is invalid or has no effect."""
    mistakes = [mistake(variable, environment) for variable in variables.VARIABLES]
    alike = variables.misspelt(environment)
    return [
        *filter(None, mistakes),
        *(f"{name}: did you mean {meant}?" for name, meant in alike.items()),
        *(f"{name}: {instead}" for name, instead in variables.promised(environment).items()),
    ]


def mistake(variable: variables.Variable[object], environment: Mapping[str, str]) -> str:
    """The mistake in a variable's value; empty for none."""
    try:
        variable.value(environment)
    except ValueError as error:
        return str(error)
    return ""


def installed(name: str) -> str:
    """The version of a package."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "is not installed"


def own_kernels() -> str:
    """Presence of GT's kernels in this installation."""
    there = importlib.util.find_spec("gt._kernels") is not None
    return "gt._kernels is there" if there else "gt._kernels is missing: GT was built without csrc"


def processor() -> str:
    """The processor's name in /proc/cpuinfo."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.machine()


def shared_memory() -> str:
    """Free and total size of the file system for rings and payloads."""
    try:
        usage = shutil.disk_usage(SHARED_MEMORY)
    except OSError as error:
        return f"{SHARED_MEMORY}: {error.strerror}"
    return f"{gibibytes(usage.free)} free of {gibibytes(usage.total)} in {SHARED_MEMORY}"


def gibibytes(count: int) -> str:
    """A size in GiB, for display."""
    return f"{count / 2**30:.1f} GiB"
