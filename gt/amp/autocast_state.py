"""Autocast settings of each thread, by type of device; gt._core casts by the region they result in.

A tensor of GT is on no type of device: among the enabled types, the list of the one that was
enabled last applies. So a program that names "cuda" is cast as PyTorch casts on a GPU, one that
names "cpu" as on a CPU, for values anywhere.
"""

import threading

from gt import _core
from gt._core import dtype
from gt.amp.casting import DEVICES
from gt.config import gpu_count
from gt.errors import InvalidUse

__all__ = [
    "autocast_decrement_nesting",
    "autocast_increment_nesting",
    "clear_autocast_cache",
    "get_autocast_cpu_dtype",
    "get_autocast_dtype",
    "get_autocast_gpu_dtype",
    "is_autocast_cache_enabled",
    "is_autocast_cpu_enabled",
    "is_autocast_enabled",
    "set_autocast_cache_enabled",
    "set_autocast_cpu_dtype",
    "set_autocast_cpu_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
    "set_autocast_gpu_dtype",
]


# Types of device that PyTorch has and no worker is on: autocast for them can be set and casts
# nothing, as in PyTorch if no tensor is on such a device.
WITHOUT_WORKERS = ("mps", "xpu")


class _State(threading.local):
    """Settings of one thread; a new thread has nothing enabled, as in PyTorch."""

    def __init__(self) -> None:
        self.enabled: list[str] = []  # the one that was enabled last is at the end
        self.dtypes = {"cpu": _core.bfloat16} | dict.fromkeys(
            ("cuda", *WITHOUT_WORKERS), _core.float16
        )
        self.keeps = True
        self.nesting = 0


_state = _State()


def kind(device_type: str) -> str:
    """The type of device of a list: `gt`, the type of every tensor, stands for that of the workers.

    Raises:
        InvalidUse: GT has no list for the type.
    """
    if device_type in (*DEVICES, *WITHOUT_WORKERS):
        return device_type
    if device_type == "gt":
        return "cuda" if gpu_count() else "cpu"
    raise InvalidUse(f"unknown device type for autocast in get_autocast_dtype: {device_type}")


class Kept:
    """A copy of this thread's settings, which a `with` block sets again: a checkpoint recomputes
    under it.
    """

    def __init__(self) -> None:
        self._set = (list(_state.enabled), dict(_state.dtypes), _state.keeps)

    def __enter__(self) -> None:
        outer = Kept()
        self._restore()
        self._set = outer._set

    def __exit__(self, *reason: object) -> None:
        inner = Kept()
        self._restore()
        self._set = inner._set

    def _restore(self) -> None:
        enabled, dtypes, keeps = self._set
        _state.enabled, _state.dtypes, _state.keeps = list(enabled), dict(dtypes), keeps
        _apply()


def _apply() -> None:
    """Tells gt._core the region that this thread's settings result in."""
    region = None
    acting = [device for device in _state.enabled if device in DEVICES]
    if acting:
        device = acting[-1]
        region = (DEVICES.index(device), _state.dtypes[device], _state.keeps)
    _core.set_autocast_region(region)


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """True if autocast is enabled in this thread for the type of device."""
    return kind(device_type) in _state.enabled


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Enable autocast for a type of device in this thread; `set_autocast_enabled(True)` for CUDA.

    `gt.autocast` does it for a `with` block.
    """
    is_on = device_type if isinstance(device_type, bool) else bool(enabled)
    device = "cuda" if isinstance(device_type, bool) else kind(device_type)
    if device in _state.enabled:
        _state.enabled.remove(device)
    if is_on:
        _state.enabled.append(device)
    _apply()


def get_autocast_dtype(device_type: str) -> dtype:
    """The lower dtype of a type of device in this thread: at first bfloat16 for the CPU, else
    float16.
    """
    return _state.dtypes[kind(device_type)]


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    """Set the lower dtype of a type of device in this thread."""
    _state.dtypes[kind(device_type)] = dtype
    _apply()


def is_autocast_cache_enabled() -> bool:
    """True if casts of parameters are kept until the outermost region ends."""
    return _state.keeps


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Set whether casts of parameters are kept until the outermost region ends."""
    _state.keeps = enabled
    _apply()


def clear_autocast_cache() -> None:
    """Drop the casts of parameters that are kept."""
    _core.forget_autocasts()


def autocast_increment_nesting() -> int:
    """Enter a region; returns the number of regions that this thread is in then."""
    _state.nesting += 1
    return _state.nesting


def autocast_decrement_nesting() -> int:
    """Leave a region; returns the number of regions that this thread is in then."""
    _state.nesting -= 1
    return _state.nesting


def is_autocast_cpu_enabled() -> bool:
    """True if autocast is enabled in this thread for the CPU's list."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Enable autocast in this thread for the CPU's list."""
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> dtype:
    """The lower dtype for the CPU's list."""
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: dtype) -> None:
    """Set the lower dtype for the CPU's list."""
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> dtype:
    """The lower dtype for the GPUs' list."""
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: dtype) -> None:
    """Set the lower dtype for the GPUs' list."""
    set_autocast_dtype("cuda", dtype)
