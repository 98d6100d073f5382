"""`gt.accelerator`: PyTorch's functions for any kind of GPU, with the answers of `gt.cuda`."""

# ruff: noqa: ARG001 - a device is accepted, and places nothing

from gt import cuda
from gt.compat import misses
from gt.tensors.devices import device

__all__ = [
    "current_accelerator",
    "current_device_index",
    "device_count",
    "empty_cache",
    "is_available",
    "set_device_index",
    "synchronize",
]

is_available = cuda.is_available
device_count = cuda.device_count
empty_cache = cuda.empty_cache


def current_accelerator(check_available: bool = False) -> device | None:
    """`cuda` if this machine has GPUs, else None."""
    return device("cuda") if is_available() else None


def current_device_index() -> int:
    """0: PyTorch's first number; no call here depends on it."""
    return cuda.current_device()


def set_device_index(device: object, /) -> None:
    """Does nothing: the dispatcher decides where values live."""


def synchronize(device: object = None, /) -> None:
    """Wait until everything emitted so far has run."""
    cuda.synchronize()


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
