"""Settings from the environment, read where a session begins; nothing else looks at os.environ.
variables.py declares GT's own.

What a file of layouts says is read in document.py, not here.
"""

import os
import pathlib
import re
import sys
from dataclasses import dataclass
from typing import TypeVar

from gt import torch_imports
from gt.config import place, variables
from gt.config.variables import Variable
from gt.errors import ConfigError
from gt.user_line import warn

T = TypeVar("T")
NCCL_SETTINGS = {
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    # Calls of several groups run on a GPU in the order in which they were made.
    "NCCL_LAUNCH_ORDER_IMPLICIT": "1",
    # By default a failed call would end the process, and a monitor ask the store for ever.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Options with which the embedded dispatcher starts its workers."""

    workers: int | None
    gpus: int
    backend: str
    backend_name: str
    executable: str
    python_path: str
    threads: int | None
    cores: int
    instruction_log: str | None
    prices: str | None
    verbose: bool
    address: str | None


@dataclass(frozen=True, kw_only=True)
class Rank:
    """Facts that mpirun passes to a process that it starts.

    Args:
        rank: the process's number.
        size: number of processes.
        local_size: number of processes on this host.
        job: a word that the processes of one mpirun share, unlike any other job of this host at
            that time.
        master: MASTER_ADDR and MASTER_PORT, if both are set.
    """

    rank: int
    size: int
    local_size: int
    job: str
    master: tuple[str, int] | None


def read(variable: Variable[T]) -> T:
    """The variable's value in the environment at this moment.

    Raises:
        ConfigError: its text has no meaning.
    """
    try:
        return variable.value(os.environ)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def check() -> None:
    """Look at all variables before a session begins, those of its workers too.

    Raises:
        ConfigError: one of them means nothing.
    """
    for variable in variables.VARIABLES:
        read(variable)
    for name, meant in variables.misspelt(os.environ).items():
        warn(f"GT has no variable {name}, which changes nothing; did you mean {meant}?")
    for name, instead in variables.promised(os.environ).items():
        warn(f"{name} changes nothing yet; {instead}")


def is_verbose() -> bool:
    """True if GT_VERBOSE asks for messages about what starts."""
    return read(variables.VERBOSE)


def uses_rings() -> bool:
    """True if a dispatcher on this host is reached by shared memory, which GT_NO_RING turns off."""
    return not read(variables.NO_RING)


def shards_batches() -> bool:
    """True if GT_AUTO_SHARD cuts batches over all workers."""
    return read(variables.AUTO_SHARD)


def backend() -> str:
    """The value of GT_BACKEND: `pytorch`, `native`, `numpy`, or `auto` (pytorch if it is
    installed).
    """
    return read(variables.BACKEND)


def own_kernels() -> str:
    """The value of GT_KERNELS: `auto` (where they are faster), `on` (wherever they can), `off`."""
    return read(variables.KERNELS)


def gpu_count() -> int:
    """NVIDIA GPUs that this process may use, without loading any library of theirs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    return len(list(pathlib.Path("/proc/driver/nvidia/gpus").glob("*")))


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def mpi_rank() -> Rank | None:
    """The place of this process among those of an mpirun; None where none has started it.

    Raises:
        ConfigError: a number is none.
    """
    for engine in place.ENGINES:
        rank, size, local_size = engine.rank, engine.size, engine.local_size
        if rank in os.environ and size in os.environ:
            try:
                numbers = [int(os.environ[name]) for name in (rank, size)]
                here = int(os.environ.get(local_size, numbers[1]))
                port = int(os.environ.get("MASTER_PORT", "0"))
            except ValueError as error:
                raise ConfigError(f"{rank}, {size}, {local_size}, MASTER_PORT: {error}") from None
            job = f"{os.environ.get('PMIX_NAMESPACE', 'job')}-{os.getppid()}"
            host = os.environ.get("MASTER_ADDR")
            return Rank(
                rank=numbers[0],
                size=numbers[1],
                local_size=here,
                job=re.sub(r"\W", "_", job),
                master=(host, port) if host and port else None,
            )
    return None


def threads() -> int | None:
    """Threads of a large instruction: GT_THREADS, else the first number of OMP_NUM_THREADS."""
    own = read(variables.THREADS)
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return own or (int(first) if first.isdigit() and int(first) > 0 else None)


def use_threads(count: int | None) -> None:
    """Set the waiting and the threads of a worker's libraries, OpenMP above all, before they are
    loaded.

    Threads sleep between two instructions: by default they would spin for milliseconds on the core
    that the client needs. A policy that the user has set stays.

    Args:
        count: number of threads; None leaves it to the library, which takes all cores.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # PyTorch imports no front ends of other devices in a worker: GT's own would make it a client.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    if count is not None:
        os.environ["OMP_NUM_THREADS"] = str(count)


def stand_alone() -> None:
    """This process and those that it starts use one small worker of their own, and no file."""
    kept = "numpy" if backend() == "numpy" else "native"
    for variable in variables.VARIABLES:
        if variable.of_session:
            os.environ.pop(variable.name, None)
    os.environ |= {
        variables.BACKEND.name: kept,
        variables.WORKER_COUNT.name: "1",
        variables.THREADS.name: "1",
    }


def session_options() -> SessionOptions:
    """The settings of this moment: variables may be set before or after `import gt`."""
    check()
    cores = core_count()
    here = str(pathlib.Path(__file__).resolve().parent.parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    return SessionOptions(
        workers=read(variables.WORKER_COUNT),
        gpus=gpu_count(),
        backend=backend(),
        backend_name=resolved_backend(backend()),
        executable=sys.executable,
        python_path=f"{here}:{inherited}" if inherited else here,
        threads=threads(),
        cores=cores,
        instruction_log=instruction_log(),
        prices=read(variables.PRICES) or None,
        verbose=is_verbose(),
        address=address(),
    )


def resolved_backend(name: str) -> str:
    """The backend of that name; of `auto` PyTorch's where it is installed, else the native one."""
    if name == "auto":
        return "pytorch" if torch_imports.torch_is_installed() else "native"
    return name


def set_variables(**settings: str) -> None:
    """Set them in this process, and so in those that it starts."""
    os.environ |= settings


def with_settings(**settings: str) -> dict[str, str]:
    """The environment of a program that is started with these variables."""
    return os.environ | settings


def address() -> str | None:
    """The dispatcher that GT_ADDRESS names."""
    return read(variables.ADDRESS) or None


def with_gpu(index: int) -> dict[str, str]:
    """The environment of a program that sees one of the GPUs that this one sees.

    Args:
        index: its place among these; where there is none of that place, nothing changes.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = [str(place) for place in range(gpu_count())] if visible is None else visible.split(",")
    if not 0 <= index < len(there):
        return dict(os.environ)
    return os.environ | {"CUDA_VISIBLE_DEVICES": there[index].strip()}


def token() -> str | None:
    """The token that a dispatcher off this host asks for."""
    return read(variables.TOKEN) or None


def use_token(token: str) -> None:
    """Sessions of this process, and what it starts, show this token."""
    os.environ[variables.TOKEN.name] = token


def idle_seconds() -> float:
    """Seconds for which a worker keeps free memory for later values: GT_IDLE_SECONDS, else five."""
    return read(variables.IDLE_SECONDS)


def look_ahead() -> int | None:
    """Extent of the stream that workers read ahead: None for all, 0 for nothing, else a seed to
    draw from.

    For tests, which show with GT_LOOK_AHEAD that no result depends on it.
    """
    return read(variables.LOOK_AHEAD)


def native_rows() -> str:
    """The value of GT_ATEN, if a torch worker runs rows by ATen in C++: `auto`, `on` or `off`.

    `auto`, the default, compiles the helper beside the first instructions, `on` before them.
    """
    return read(variables.ATEN)


def cache_folder() -> pathlib.Path:
    """Folder for files made once for this machine: GT_CACHE_DIR, else one in the user's cache."""
    own = read(variables.CACHE_DIR)
    users = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(own) if own else pathlib.Path(users) / "gt"


def cpp_compiler() -> str:
    """The C++ compiler: CXX, else `c++`."""
    return os.environ.get("CXX") or "c++"


def process_groups() -> str:
    """The value of GT_PROCESS_GROUPS: `auto` (the default), `off`, `gloo` or `nccl`."""
    return read(variables.GROUPS)


def compression() -> str:
    """The value of GT_COMPRESSION, the compression of bytes for other hosts.

    Returns:
        `auto` (the default), `on` or `off`; or, where sums may lose bits, a codec (`bf16` or
        `int8`), alone or behind a comma.
    """
    return read(variables.COMPRESSION)


def instruction_log() -> str | None:
    """The file of GT_INSTRUCTION_LOG, beside which workers record when they executed what."""
    return read(variables.INSTRUCTION_LOG) or None


def trusted_networks() -> list[str]:
    """The networks in GT_TRUSTED_NETWORKS, as `10.0.0.0/8,192.168.7.0/24`."""
    networks: tuple[str, ...] = read(variables.TRUSTED_NETWORKS)
    return list(networks)


def use_nccl_interface(interface: str) -> None:
    """One algorithm, so that sums have the same bits in each run; errors are ours to handle.

    What the user has set stays.

    Args:
        interface: the network interface by which members meet.
    """
    for name, value in NCCL_SETTINGS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")


def layout_file() -> str | None:
    """The file of layouts that GT_CONFIG names, relative to the working directory."""
    return read(variables.CONFIG) or None


def rule_log() -> str | None:
    """The file to which rules by path that mean a parameter are written: GT_RULE_LOG."""
    return read(variables.RULE_LOG) or None
