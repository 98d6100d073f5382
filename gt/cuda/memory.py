"""`gt.cuda.memory`: what values take on the workers. Nothing here asks a driver.

Worker i is GPU i of this machine. Without a GPU there is nothing to count, as in PyTorch.
"""

import warnings
from collections import OrderedDict

from gt import config, debug, devices, misses
from gt.errors import InvalidUse, NotSupported

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def memory_allocated(device: object = None) -> int:
    """Bytes of memory that hold values on a GPU's worker; 0 without a GPU.

    Args:
        device: a number or a device with one; by default the first.
    """
    return _counter("bytes", device)


def max_memory_allocated(device: object = None) -> int:
    """The most that `memory_allocated` has been since the worker began; 0 without a GPU."""
    return _counter("bytes_peak", device)


def memory_reserved(device: object = None) -> int:
    """`memory_allocated`: what a worker's allocator keeps beside it is not counted."""
    return memory_allocated(device)


def max_memory_reserved(device: object = None) -> int:
    """`max_memory_allocated`: what a worker's allocator keeps beside it is not counted."""
    return max_memory_allocated(device)


def memory_stats(device: object = None) -> OrderedDict[str, int]:
    """The two counters under PyTorch's names; empty without a GPU."""
    if not config.gpu_count():
        return OrderedDict()
    return OrderedDict(
        [
            ("allocated_bytes.all.current", memory_allocated(device)),
            ("allocated_bytes.all.peak", max_memory_allocated(device)),
        ]
    )


def memory_summary(device: object = None, abbreviated: bool = False) -> str:  # noqa: ARG001
    """The counters as a line a counter."""
    lines = [f"{name}: {value}" for name, value in memory_stats(device).items()]
    return "\n".join(lines) if lines else "no GPU, nothing allocated"


def reset_peak_memory_stats(device: object = None) -> None:  # noqa: ARG001 - of any worker
    """Nothing without a GPU; with one a warning, for a worker's peak counts since it began."""
    if config.gpu_count():
        warnings.warn(
            "reset_peak_memory_stats: a worker's peak counts since the worker began, for all who "
            "use it; max_memory_allocated() goes on from there",
            stacklevel=2,
        )


reset_max_memory_allocated = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: object = None) -> None:
    """Nothing: no counter of these accumulates."""


def empty_cache() -> None:
    """Nothing: the workers give memory back when it is needed."""


def mem_get_info(device: object = None) -> tuple[int, int]:
    """Free bytes of a GPU and all of them, in PyTorch.

    Raises:
        RuntimeError: this machine has no GPU.
        NotSupported: it has one, whose driver only its worker asks.
    """
    check_available()
    raise NotSupported(
        f"mem_get_info({'' if device is None else device}): the client does not ask a GPU's "
        "driver; gt.cuda.memory_allocated() says what values take"
    )


def set_per_process_memory_fraction(
    fraction: float,
    device: object = None,  # noqa: ARG001 - of any
) -> None:
    """A limit of PyTorch's allocator in this process.

    Raises:
        NotSupported: always, where this machine has GPUs.
    """
    check_available()
    raise NotSupported(
        f"set_per_process_memory_fraction({fraction}): a worker serves several programs; the "
        "dispatcher limits what a session holds"
    )


def check_available() -> None:
    """Raise PyTorch's error where this machine has no GPU."""
    if not config.gpu_count():
        raise InvalidUse("No CUDA GPUs are available")


def index(device: object) -> int:
    """The number of a GPU; of no device in particular 0.

    Raises:
        InvalidUse: there are fewer.
    """
    place = 0 if device is None else devices.device(device).index or 0
    if not 0 <= place < config.gpu_count():
        raise InvalidUse(f"Invalid device id: {place}, of {config.gpu_count()}")
    return place


def _counter(name: str, device: object) -> int:
    if not config.gpu_count():
        return 0
    place = index(device)
    counters = {stats["worker"]: stats[name] for stats in debug.get_worker_stats()}
    return int(counters.get(place, 0))  # a worker that was not asked for holds nothing


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
