"""Place of a process among those that an engine started with it, from the engine's variables.

A row for each engine. Nothing here reads the environment; callers hand it in.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gt.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Variables by which an engine numbers what it starts; an empty name is a number it lacks.

    Args:
        name: as a person calls it.
        rank: among all.
        size: how many there are; only of an mpirun, whose rank 0 may be the program itself.
        local_rank: among those of a host.
        local_size: how many a host has.
    """

    name: str
    rank: str
    size: str = ""
    local_rank: str = ""
    local_size: str = ""


@dataclass(frozen=True, kw_only=True)
class Place:
    """An engine's description of one worker; None for facts that it does not give."""

    engine: str
    rank: int
    local_rank: int | None
    local_size: int | None


# The innermost engine first: a batch job of Slurm in which mpirun starts the workers has the
# variables of both, and those of Slurm are then of the job's first task for every worker.
ENGINES = (
    Engine(name="torchrun", rank="RANK", local_rank="LOCAL_RANK", local_size="LOCAL_WORLD_SIZE"),
    Engine(
        name="Open MPI",
        rank="OMPI_COMM_WORLD_RANK",
        size="OMPI_COMM_WORLD_SIZE",
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
        local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    Engine(
        name="MPICH",  # and what descends from it
        rank="PMI_RANK",
        size="PMI_SIZE",
        local_rank="MPI_LOCALRANKID",
        local_size="MPI_LOCALNRANKS",
    ),
    Engine(name="Slurm", rank="SLURM_PROCID", local_rank="SLURM_LOCALID"),
    Engine(name="LeaderWorkerSet", rank="LWS_WORKER_INDEX"),
    Engine(name="Kubernetes", rank="JOB_COMPLETION_INDEX"),
    Engine(name="RANK", rank="RANK"),
)


def found(environment: Mapping[str, str]) -> Place:
    """Place of this process: of the first engine that numbers it by all of its ranks.

    Raises:
        ConfigError: no engine does, or a number is none.
    """
    for engine in ENGINES:
        ranks = [name for name in (engine.rank, engine.local_rank) if name]
        if all(environment.get(name) for name in ranks):
            return Place(
                engine=engine.name,
                rank=_number(engine.rank, environment) or 0,
                local_rank=_number(engine.local_rank, environment),
                local_size=_number(engine.local_size, environment),
            )
    names = ", ".join(dict.fromkeys(engine.rank for engine in ENGINES))
    raise ConfigError(
        f"--launch auto: none of {names} is set, so no engine has numbered this worker"
    )


def threads(place: Place, cores: int, machine_cores: int) -> int | None:
    """Threads of a worker that shares its host; None where its engine does not say with how many.

    Args:
        place: the worker's.
        cores: that this process may use, which some engines have cut already.
        machine_cores: of the host.
    """
    if place.local_size is None:
        return None
    return max(1, min(cores, machine_cores // max(1, place.local_size)))


def _number(name: str, environment: Mapping[str, str]) -> int | None:
    word = environment.get(name, "") if name else ""
    if not word:
        return None
    if not (word.isascii() and word.isdigit()):
        raise ConfigError(f"{name}={word}: expected a whole number")
    return int(word)
