"""`gt.cuda.memory`: memory that values take on the workers, from their counters, not from the
driver.

Worker i is GPU i of this machine. Without a GPU all counters are 0, as in PyTorch.
"""

import warnings
from collections import OrderedDict

from gt import config
from gt.compat import debug, misses
from gt.errors import InvalidUse, NotSupported
from gt.tensors import devices

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
    """Bytes of values on a GPU's worker; 0 without a GPU.

    Args:
        device: A number or a device with one; by default the first.
    """
    return _counter("bytes", device)


def max_memory_allocated(device: object = None) -> int:
    """Peak of `memory_allocated` since the worker began; 0 without a GPU."""
    return _counter("bytes_peak", device)


def memory_reserved(device: object = None) -> int:
    """Equal to `memory_allocated`: memory that a worker's allocator caches is not counted."""
    return memory_allocated(device)


def max_memory_reserved(device: object = None) -> int:
    """Equal to `max_memory_allocated`: memory that a worker's allocator caches is not counted."""
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
    """The counters as text, one line each."""
    lines = [f"{name}: {value}" for name, value in memory_stats(device).items()]
    return "\n".join(lines) if lines else "no GPU, nothing allocated"


def reset_peak_memory_stats(device: object = None) -> None:  # noqa: ARG001 - for all workers alike
    """No effect without a GPU; with one a warning, as a worker's peak counts since it began."""
    if config.gpu_count():
        warnings.warn(
            "reset_peak_memory_stats: a worker's peak counts since the worker began, for all who "
            "use it; max_memory_allocated() goes on from there",
            stacklevel=2,
        )


reset_max_memory_allocated = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: object = None) -> None:
    """No effect: these counters do not accumulate."""


def empty_cache() -> None:
    """No effect: workers free memory when it is needed."""


def mem_get_info(device: object = None) -> tuple[int, int]:
    """Free and total bytes of a GPU, in PyTorch; GT does not have them.

    Raises:
        RuntimeError: This machine has no GPU.
        NotSupported: It has one: only its worker talks to the driver.
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
    """Limit for PyTorch's allocator in this process, which GT does not have.

    Raises:
        NotSupported: This machine has GPUs.
    """
    check_available()
    raise NotSupported(
        f"set_per_process_memory_fraction({fraction}): a worker serves several programs; the "
        "dispatcher limits what a session holds"
    )


def check_available() -> None:
    """Raise PyTorch's error if this machine has no GPU."""
    if not config.gpu_count():
        raise InvalidUse("No CUDA GPUs are available")


def index(device: object) -> int:
    """Number of a GPU; 0 for a device without one.

    Raises:
        InvalidUse: The machine has fewer GPUs.
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
    return int(counters.get(place, 0))  # a worker that has not started holds nothing


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
