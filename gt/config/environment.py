"""Settings from the environment, read where a session begins; nothing else looks at os.environ.

What a file of layouts says is read in document.py, not here.
"""

import os
import pathlib
import sys
from dataclasses import dataclass

BACKENDS = {"pytorch": "pytorch", "torch": "pytorch", "numpy": "numpy", "": "auto"}


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
    """What GT_BACKEND says: `pytorch`, `numpy`, or `auto` (pytorch where it is installed)."""
    word = os.environ.get("GT_BACKEND", "").lower()
    if word not in BACKENDS:
        raise ValueError(f"GT_BACKEND={word}: expected one of pytorch, torch, numpy")
    return BACKENDS[word]


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


def session_options() -> SessionOptions:
    """The settings of this moment: variables may be set before or after `import gt`."""
    workers = whole_number("GT_WORKERS")
    cores = len(os.sched_getaffinity(0))
    here = str(pathlib.Path(__file__).resolve().parent.parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    return SessionOptions(
        workers=workers,
        gpus=gpu_count(),
        backend=backend(),
        executable=sys.executable,
        python_path=f"{here}:{inherited}" if inherited else here,
        threads=whole_number("GT_THREADS"),
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


def layout_file() -> str | None:
    """The file of layouts that GT_CONFIG names, relative to the working directory."""
    return os.environ.get("GT_CONFIG") or None
