"""Process-wide switches that PyTorch programs set; those without a meaning here are accepted.

Getters return the value set before. No switch changes a number.
"""

import warnings
from dataclasses import dataclass

from gt import config
from gt.errors import InvalidType, InvalidUse
from gt.tensors.devices import device as device_class

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_default_device",
    "get_deterministic_debug_mode",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "get_num_threads",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled",
    "set_default_device",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_num_threads",
    "set_warn_always",
    "use_deterministic_algorithms",
]

PRECISIONS = ("highest", "high", "medium")
MODES = ("default", "warn", "error")


@dataclass
class Switches:
    """The values set last."""

    device: device_class | None = None
    precision: str = "highest"
    mode: int = 0  # deterministic algorithms: 0 off, 1 warns, 2 raises
    threads: int | None = None
    interop_threads: int = 1
    warn_always: bool = False


_switches = Switches()


def set_default_device(device: object) -> None:
    """Accepts a default device for new tensors, without effect; None clears it."""
    _switches.device = None if device is None else device_class(device)


def get_default_device() -> device_class:
    """The device set last, else `gt`, the device of every tensor."""
    return _switches.device or device_class("gt")


def set_num_threads(int: int, /) -> None:
    """Accepts a number of threads, without effect: the client computes nothing.

    A worker's number of threads is `GT_THREADS` (or `OMP_NUM_THREADS`), read at its start.

    Raises:
        InvalidUse: The number is below 1.
    """
    if int < 1:
        raise InvalidUse("set_num_threads expects a positive integer")
    _switches.threads = int


def get_num_threads() -> int:
    """The number set last, else the most threads that a worker of this program has."""
    return _switches.threads or config.environment.threads() or config.environment.core_count()


def set_num_interop_threads(int: int, /) -> None:
    """Accepts a number of threads, without effect: instructions overlap by themselves."""
    if int < 1:
        raise InvalidUse("set_num_interop_threads expects a positive integer")
    _switches.interop_threads = int


def get_num_interop_threads() -> int:
    """The number set last, else 1."""
    return _switches.interop_threads


def set_float32_matmul_precision(precision: str, /) -> None:
    """Accepts `highest`, `high` or `medium`, without effect: products have the highest
    precision.
    """
    if precision not in PRECISIONS:
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current "
            "setFloat32MatmulPrecision call has no effect.",
            stacklevel=2,
        )
        return
    _switches.precision = precision


def get_float32_matmul_precision() -> str:
    """The value set last, else `highest`."""
    return _switches.precision


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted without effect: reductions always have a fixed order here."""
    _switches.mode = (1 if warn_only else 2) if mode else 0


def are_deterministic_algorithms_enabled() -> bool:
    """True if `use_deterministic_algorithms` was asked for."""
    return _switches.mode > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """True if `use_deterministic_algorithms` was asked for with `warn_only`."""
    return _switches.mode == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Sets `use_deterministic_algorithms` by number or name: 0 default, 1 warn, 2 error.

    Raises:
        InvalidType, InvalidUse: it is neither a number nor a name, or an unknown one.
    """
    if not isinstance(debug_mode, int | str):
        raise InvalidType(f"debug_mode must be str or int, but got {type(debug_mode)}")
    modes = MODES if isinstance(debug_mode, str) else range(len(MODES))
    if debug_mode not in modes:
        raise InvalidUse(
            "invalid value of debug_mode, expected one of `default`, `warn`, `error`, "
            f"but got {debug_mode}"
        )
    _switches.mode = list(modes).index(debug_mode)


def get_deterministic_debug_mode() -> int:
    """The mode set last: 0 default, 1 warn, 2 error."""
    return _switches.mode


def set_flush_denormal(mode: bool, /) -> bool:
    """False: a worker's own process controls its processor."""
    if not isinstance(mode, bool):
        raise InvalidType(f"set_flush_denormal expects a bool, but got {type(mode).__name__}")
    return False


def set_warn_always(b: bool, /) -> None:
    """Accepted without effect: Python's own filter limits warnings."""
    _switches.warn_always = b


def is_warn_always_enabled() -> bool:
    """The value set last, else False."""
    return _switches.warn_always
