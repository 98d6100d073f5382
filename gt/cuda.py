"""`gt.cuda`: what scripts ask before they say `.cuda()`, which here places nothing.

The workers have the GPUs; the client neither needs one nor talks to one.
"""

import pathlib

from gt import config, devices, random, session
from gt.errors import InvalidUse

__all__ = [
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_name",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "synchronize",
]


def is_available() -> bool:
    """Whether this machine has GPUs, each of which gets a worker."""
    return device_count() > 0


def device_count() -> int:
    """GPUs of this machine that CUDA_VISIBLE_DEVICES leaves."""
    return config.gpu_count()


def current_device() -> int:
    """0: the number that PyTorch begins with; no call here depends on it."""
    _check_available()
    return 0


def get_device_name(device: object = None) -> str:
    """What the driver calls a GPU of this machine: `NVIDIA H200`.

    Args:
        device: a number or a device with one; by default the first.
    """
    _check_available()
    place = 0 if device is None else devices.device(device).index or 0
    names = _model_names()
    if not 0 <= place < min(len(names), device_count()):
        raise InvalidUse(f"Invalid device id: {place}, of {device_count()}")
    return names[place]


def _model_names() -> list[str]:
    """Models of this machine's GPUs in the order of their buses, as the driver's files say."""
    files = sorted(pathlib.Path("/proc/driver/nvidia/gpus").glob("*/information"))
    rows = [line.partition(":") for file in files for line in file.read_text().splitlines()]
    return [model.strip() for key, _, model in rows if key == "Model"]


def _check_available() -> None:
    if not is_available():
        raise InvalidUse("No CUDA GPUs are available")


def synchronize(device: object = None) -> None:  # noqa: ARG001 - accepted, and places nothing
    """Wait until everything emitted so far has run."""
    session.synchronize()


def manual_seed(seed: int) -> None:
    """Seed every draw, as `gt.manual_seed`: the numbers are the same on every device."""
    random.manual_seed(seed)


manual_seed_all = manual_seed


def empty_cache() -> None:
    """Nothing: the workers give memory back when it is needed."""


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
