"""Place of a process among those that a launcher started, from the launcher's variables.

The table has a row for each launcher. Nothing here reads the environment; callers pass it in.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gt.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Variables in which a launcher numbers its processes; an empty name is a number that it lacks.

    Args:
        name: Common name of the launcher.
        rank: Variable with the process's number among all.
        size: Variable with the number of processes; only for an mpirun, whose rank 0 may be the
            program itself.
        local_rank: Variable with the number among the processes of a host.
        local_size: Variable with the number of processes on a host.
        own_threads: OMP_NUM_THREADS that the launcher sets where the user has not.
    """

    name: str
    rank: str
    size: str = ""
    local_rank: str = ""
    local_size: str = ""
    own_threads: str = ""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Place of one worker according to its launcher; None for missing facts."""

    engine: str
    rank: int
    local_rank: int | None
    local_size: int | None
    own_threads: str = ""


# The innermost launcher comes first: in a Slurm batch job whose mpirun starts the workers, both set
# their variables, and those of Slurm describe the job's first task for every worker.
ENGINES = (
    Engine(
        name="torchrun",
        rank="RANK",
        local_rank="LOCAL_RANK",
        local_size="LOCAL_WORLD_SIZE",
        own_threads="1",
    ),
    Engine(
        name="Open MPI",
        rank="OMPI_COMM_WORLD_RANK",
        size="OMPI_COMM_WORLD_SIZE",
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
        local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    Engine(
        name="MPICH",  # and its descendants
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
    """Place of this process, according to the first launcher whose variables number it among all
    ranks.

    Raises:
        ConfigError: No launcher does, or a variable does not hold a number.
    """
    for engine in ENGINES:
        ranks = [name for name in (engine.rank, engine.local_rank) if name]
        if all(environment.get(name) for name in ranks):
            return Place(
                engine=engine.name,
                rank=_number(engine.rank, environment) or 0,
                local_rank=_number(engine.local_rank, environment),
                local_size=_number(engine.local_size, environment),
                own_threads=engine.own_threads,
            )
    names = ", ".join(dict.fromkeys(engine.rank for engine in ENGINES))
    raise ConfigError(
        f"--launch auto: none of {names} is set, so no engine has numbered this worker"
    )


def threads(place: Place, cores: int, machine_cores: int) -> int | None:
    """Threads for a worker that shares its host; None if its launcher does not give their number.

    Args:
        place: Place of the worker.
        cores: Number of cores that this process may use; some launchers have divided them already.
        machine_cores: Number of cores of the host.
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
