"""Settings from the environment, read where a session begins; nothing else looks at os.environ.

What a file of layouts says is read in document.py, not here.
"""

import os
import pathlib
import sys
from dataclasses import dataclass

PROCESS_GROUPS = ("auto", "off", "gloo", "nccl")
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
IDLE_SECONDS = 5.0
COMPRESSIONS = ("auto", "on", "off")
CODECS = ("bf16", "int8")
IDLE_SECONDS_MAX = 86_400
BACKENDS = {
    "pytorch": "pytorch",
    "torch": "pytorch",
    "native": "native",
    "numpy": "numpy",
    "": "auto",
}
OWN_KERNELS = ("auto", "off", "on")
NATIVE_ROWS = ("auto", "on", "off")


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """How the embedded dispatcher starts its workers."""

    workers: int | None
    gpus: int
    backend: str
    executable: str
    python_path: str
    threads: int | None
    cores: int
    instruction_log: str | None
    prices: str | None
    verbose: bool
    address: str | None


def flag(name: str) -> bool:
    """A switch: unset, empty and `0` are off."""
    return os.environ.get(name, "") not in ("", "0")


def backend() -> str:
    """What GT_BACKEND says: `pytorch`, `native`, `numpy`, or `auto` (pytorch where it is there)."""
    word = os.environ.get("GT_BACKEND", "").lower()
    if word not in BACKENDS:
        raise ValueError(f"GT_BACKEND={word}: expected one of pytorch, torch, native, numpy")
    return BACKENDS[word]


def own_kernels() -> str:
    """What GT_KERNELS says: `auto` (where they are faster), `on` (wherever they can), `off`.

    On a GPU `auto` is random numbers and dropout, which have the CPU's bits: of the other kernels
    nobody has a time yet. `on` is all, collectives between GPUs of a host too, and the worker says
    what they do not take.
    """
    word = os.environ.get("GT_KERNELS", "").lower() or "auto"
    if word not in OWN_KERNELS:
        raise ValueError(f"GT_KERNELS={word}: expected one of auto, off, on")
    return word


def gpu_count() -> int:
    """NVIDIA GPUs that this process may use, without loading any library of theirs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    return len(list(pathlib.Path("/proc/driver/nvidia/gpus").glob("*")))


def whole_number(name: str) -> int | None:
    """A positive whole number, or None where the variable is not set."""
    word = os.environ.get(name, "")
    if not word:
        return None
    if not word.isdigit() or int(word) < 1:
        raise ValueError(f"{name}={word}: expected a whole number of at least 1")
    return int(word)


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def threads() -> int | None:
    """Threads of a large instruction: GT_THREADS, else the first number of OMP_NUM_THREADS."""
    own = whole_number("GT_THREADS")
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return own or (int(first) if first.isdigit() and int(first) > 0 else None)


def use_threads(count: int | None) -> None:
    """How OpenMP's threads are made and wait, in a worker, before a library of it is loaded.

    They sleep between two instructions: by default they would spin for milliseconds, on the core
    that the client needs. How they wait is the user's where the user has said so.

    Args:
        count: how many there are; None leaves it to the library, which takes all cores.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if count is not None:
        os.environ["OMP_NUM_THREADS"] = str(count)


def session_options() -> SessionOptions:
    """The settings of this moment: variables may be set before or after `import gt`."""
    workers = whole_number("GT_WORKERS")
    cores = core_count()
    here = str(pathlib.Path(__file__).resolve().parent.parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    return SessionOptions(
        workers=workers,
        gpus=gpu_count(),
        backend=backend(),
        executable=sys.executable,
        python_path=f"{here}:{inherited}" if inherited else here,
        threads=threads(),
        cores=cores,
        instruction_log=os.environ.get("GT_INSTRUCTION_LOG") or None,
        prices=os.environ.get("GT_PRICES") or None,
        verbose=flag("GT_VERBOSE"),
        address=os.environ.get("GT_ADDRESS") or None,
    )


def with_settings(**settings: str) -> dict[str, str]:
    """The environment of a program that is started with these variables."""
    return os.environ | settings


def token() -> str | None:
    """The token that a dispatcher off this host asks for."""
    return os.environ.get("GT_TOKEN") or None


def idle_seconds() -> float:
    """How long a worker keeps memory for what may come: GT_IDLE_SECONDS, else five seconds."""
    word = os.environ.get("GT_IDLE_SECONDS", "") or str(IDLE_SECONDS)
    try:
        seconds = float(word)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= IDLE_SECONDS_MAX:
        raise ValueError(f"GT_IDLE_SECONDS={word}: expected seconds, up to {IDLE_SECONDS_MAX}")
    return seconds


def look_ahead() -> int | None:
    """What workers look at of the stream behind an instruction: all, 0 for nothing, a seed to draw.

    For tests, which show with GT_LOOK_AHEAD that no result depends on it.
    """
    word = os.environ.get("GT_LOOK_AHEAD", "")
    if word and not word.isdigit():
        raise ValueError(f"GT_LOOK_AHEAD={word}: expected 0 or a seed")
    return int(word) if word else None


def native_rows() -> str:
    """Whether a torch worker runs rows by ATen in C++: GT_ATEN says `auto`, `on` or `off`.

    `auto`, the default, compiles the helper beside the first instructions, `on` before them.
    """
    word = os.environ.get("GT_ATEN", "").lower() or "auto"
    if word not in NATIVE_ROWS:
        raise ValueError(f"GT_ATEN={word}: expected one of {', '.join(NATIVE_ROWS)}")
    return word


def cache_folder() -> pathlib.Path:
    """Where what is made once for this machine is kept: GT_CACHE_DIR, else the user's cache."""
    own = os.environ.get("GT_CACHE_DIR")
    users = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(own) if own else pathlib.Path(users) / "gt"


def cpp_compiler() -> str:
    """The C++ compiler: CXX, else `c++`."""
    return os.environ.get("CXX") or "c++"


def process_groups() -> str:
    """What GT_PROCESS_GROUPS says: `auto` (the default), `off`, `gloo` or `nccl`."""
    word = os.environ.get("GT_PROCESS_GROUPS", "").lower() or "auto"
    if word not in PROCESS_GROUPS:
        raise ValueError(f"GT_PROCESS_GROUPS={word}: expected one of {', '.join(PROCESS_GROUPS)}")
    return word


def compression() -> str:
    """What GT_COMPRESSION says of bytes for other hosts.

    Returns:
        `auto` (the default), `on` or `off`; or, where sums may lose bits, a codec (`bf16` or
        `int8`), alone or behind a comma.
    """
    given = os.environ.get("GT_COMPRESSION", "").lower() or "auto"
    words = [word.strip() for word in given.split(",")]
    packing = [word for word in words if word in COMPRESSIONS]
    codecs = [word for word in words if word in CODECS]
    is_known = len(packing) + len(codecs) == len(words)
    if not is_known or max(len(packing), len(codecs)) > 1 or (codecs and packing == ["off"]):
        raise ValueError(
            f"GT_COMPRESSION={given}: expected one of {', '.join(COMPRESSIONS)}, "
            f"or a codec ({', '.join(CODECS)}), alone or as in on,int8"
        )
    return ",".join(words)


def trusted_networks() -> list[str]:
    """The networks in GT_TRUSTED_NETWORKS, as `10.0.0.0/8,192.168.7.0/24`."""
    words = os.environ.get("GT_TRUSTED_NETWORKS", "").split(",")
    return [word.strip() for word in words if word.strip()]


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
    return os.environ.get("GT_CONFIG") or None


def rule_log() -> str | None:
    """The file to which rules by path that mean a parameter are written: GT_RULE_LOG."""
    return os.environ.get("GT_RULE_LOG") or None
