"""Settings from the environment, read when a session begins; no other module looks at os.environ.

variables.py declares GT's variables; document.py reads layout files.
"""

import os
import pathlib
import re
import sys
from dataclasses import dataclass
from typing import TypeVar

from gt.compat import torch_imports
from gt.config import place, variables
from gt.config.variables import Variable
from gt.errors import ConfigError
from gt.sessions.user_line import warn

T = TypeVar("T")
NCCL_SETTINGS = {
    "NCCL_ALGO": "Ring",
    "NCCL_PROTO": "Simple",
    # Runs the calls of several groups on a GPU in the order in which they were made.
    "NCCL_LAUNCH_ORDER_IMPLICIT": "1",
    # By default a failed call would end the process, and a monitor would poll the store forever.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Options for the workers that the embedded dispatcher starts."""

    workers: int | None
    gpus: int
    backend: str
    backend_name: str
    executable: str
    python_path: str
    threads: int | None
    cores: int
    instruction_log: str | None
    debug_dispatcher: bool
    prices: str | None
    verbose: bool
    address: str | None


@dataclass(frozen=True, kw_only=True)
class Rank:
    """Variables that mpirun passes to a process that it starts.

    Args:
        rank: Number of the process.
        size: Number of processes.
        local_size: Number of processes on this host.
        job: Identifier that the processes of one mpirun share, unique among the running jobs of
            this host.
        master: MASTER_ADDR and MASTER_PORT, if both are set.
    """

    rank: int
    size: int
    local_size: int
    job: str
    master: tuple[str, int] | None


def read(variable: Variable[T]) -> T:
    """Current value of the variable in the environment.

    Raises:
        ConfigError: The text is not a valid value.
    """
    try:
        return variable.value(os.environ)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def check() -> None:
    """Check all variables before a session begins, including those of its workers.

    Raises:
        ConfigError: A variable has no valid value.
    """
    for variable in variables.VARIABLES:
        read(variable)
    for name, meant in variables.misspelt(os.environ).items():
        warn(f"GT has no variable {name}, which changes nothing; did you mean {meant}?")
    for name, instead in variables.promised(os.environ).items():
        warn(f"{name} changes nothing yet; {instead}")


def is_verbose() -> bool:
    """True if GT_VERBOSE asks for messages about processes that start."""
    return read(variables.VERBOSE)


def uses_rings() -> bool:
    """True unless GT_NO_RING turns off shared memory to a dispatcher on this host."""
    return not read(variables.NO_RING)


def shards_batches() -> bool:
    """True if GT_AUTO_SHARD shards batches over all workers."""
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
    """Number of NVIDIA GPUs that this process may use, counted without loading a CUDA library."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    return len(list(pathlib.Path("/proc/driver/nvidia/gpus").glob("*")))


def core_count() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def mpi_rank() -> Rank | None:
    """Place of this process among those of mpirun; None outside mpirun.

    Raises:
        ConfigError: A variable that holds a number has another value.
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
    """Threads for a large instruction: GT_THREADS, else the first number in OMP_NUM_THREADS."""
    own = read(variables.THREADS)
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return own or (int(first) if first.isdigit() and int(first) > 0 else None)


def use_threads(count: int | None) -> None:
    """Set the thread count and the wait policy of a worker's libraries (such as OpenMP) before they
    load.

    Threads sleep between instructions: by default they would spin for milliseconds on the core that
    the client needs. A policy set by the user stays.

    Args:
        count: Number of threads; with None, the library takes all cores.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Keeps PyTorch from importing front ends of other devices in a worker: GT's own would make it a
    # client.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    if count is not None:
        os.environ["OMP_NUM_THREADS"] = str(count)


def stand_alone() -> None:
    """Let this process and its children use one small worker of their own, and no layout file."""
    worker_backend = "numpy" if backend() == "numpy" else "native"
    for variable in variables.VARIABLES:
        if variable.of_session:
            os.environ.pop(variable.name, None)
    os.environ |= {
        variables.BACKEND.name: worker_backend,
        variables.WORKER_COUNT.name: "1",
        variables.THREADS.name: "1",
    }


def session_options() -> SessionOptions:
    """Settings now: variables may be set before or after `import gt`."""
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
        debug_dispatcher=debugs_dispatcher(),
        prices=read(variables.PRICES) or None,
        verbose=is_verbose(),
        address=address(),
    )


def resolved_backend(name: str) -> str:
    """Backend of that name; `auto` is PyTorch's if it is installed, else the native one."""
    if name == "auto":
        return "pytorch" if torch_imports.torch_is_installed() else "native"
    return name


def set_variables(**settings: str) -> None:
    """Set variables in this process and the processes that it starts."""
    os.environ |= settings


def with_settings(**settings: str) -> dict[str, str]:
    """Environment for a program that is started with these variables."""
    return os.environ | settings


def address() -> str | None:
    """Address of the dispatcher from GT_ADDRESS."""
    return read(variables.ADDRESS) or None


def with_gpu(index: int) -> dict[str, str]:
    """Environment for a program that sees one of the GPUs that this process sees.

    Args:
        index: Index among these GPUs; an index out of range changes nothing.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = [str(place) for place in range(gpu_count())] if visible is None else visible.split(",")
    if not 0 <= index < len(there):
        return dict(os.environ)
    return os.environ | {"CUDA_VISIBLE_DEVICES": there[index].strip()}


def token() -> str | None:
    """Token that a dispatcher on another host requires."""
    return read(variables.TOKEN) or None


def tls_ca() -> str | None:
    """Path of the certificate of the authority by which a dispatcher is known: GT_TLS_CA."""
    return read(variables.TLS_CA) or None


def use_token(token: str) -> None:
    """Set the token for sessions of this process and of its children."""
    os.environ[variables.TOKEN.name] = token


def idle_seconds() -> float:
    """Seconds for which a worker keeps free memory for reuse: GT_IDLE_SECONDS, else five."""
    return read(variables.IDLE_SECONDS)


def look_ahead() -> int | None:
    """Extent of the stream that workers read ahead: None for all of it, 0 for nothing, else a seed
    for random extents.

    Tests set GT_LOOK_AHEAD to show that no result depends on it.
    """
    return read(variables.LOOK_AHEAD)


def aten_rows() -> str:
    """Value of GT_ATEN, which lets a torch worker run rows by ATen in C++: `auto`, `on` or `off`.

    `auto`, the default, compiles the helper while the first instructions run, `on` before them.
    """
    return read(variables.ATEN)


def compilation() -> str:
    """Value of GT_COMPILE: `auto`, `inductor`, `eager` or `off`."""
    return read(variables.COMPILE)


def hotpath_threshold() -> int:
    """Value of GT_HOTPATH_THRESHOLD."""
    return read(variables.HOTPATH_THRESHOLD)


def hotpath_min_seq() -> int:
    """Value of GT_HOTPATH_MIN_SEQ."""
    return read(variables.HOTPATH_MIN_SEQ)


def debugs_client() -> bool:
    """True if GT_DEBUG_CLIENT asks for a line for each instruction that is emitted."""
    return read(variables.DEBUG_CLIENT)


def debugs_dispatcher() -> bool:
    """True if GT_DEBUG_DISPATCHER asks for a line for each placement."""
    return read(variables.DEBUG_DISPATCHER)


def debugs_worker() -> bool:
    """True if GT_DEBUG_WORKER asks for a line for each execution."""
    return read(variables.DEBUG_WORKER)


def debugs_compile() -> bool:
    """True if GT_DEBUG_COMPILE asks for messages about compiling."""
    return read(variables.DEBUG_COMPILE)


def front() -> str:
    """Value of GT_FRONT, which lets operators on the device `mux` be called in C++: `auto`, `on` or
    `off`.
    """
    return read(variables.FRONT)


def cache_folder() -> pathlib.Path:
    """Folder for files that are built once per machine: GT_CACHE_DIR, else one in the
    user's cache.
    """
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
    """File of GT_INSTRUCTION_LOG; beside it, workers record the times at which instructions ran."""
    return read(variables.INSTRUCTION_LOG) or None


def trusted_networks() -> list[str]:
    """The networks in GT_TRUSTED_NETWORKS, as `10.0.0.0/8,192.168.7.0/24`."""
    networks: tuple[str, ...] = read(variables.TRUSTED_NETWORKS)
    return list(networks)


def use_nccl_interface(interface: str) -> None:
    """Configure NCCL: one algorithm, so that sums have the same bits in each run, and errors left
    to GT.

    Variables set by the user stay.

    Args:
        interface: Network interface through which members meet.
    """
    for name, value in NCCL_SETTINGS.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")


def layout_file() -> str | None:
    """Layout file that GT_CONFIG names, relative to the working directory."""
    return read(variables.CONFIG) or None


def rule_log() -> str | None:
    """File of GT_RULE_LOG, which lists the rules by path that match a parameter."""
    return read(variables.RULE_LOG) or None
