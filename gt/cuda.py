"""`gt.cuda`: what scripts ask before they say `.cuda()`, which here places nothing.

The workers have the GPUs; the client neither needs one nor talks to one.
"""

from gt import config, random, session

__all__ = [
    "device_count",
    "empty_cache",
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


def synchronize(device: object = None) -> None:  # noqa: ARG001 - accepted, and places nothing
    """Wait until everything emitted so far has run."""
    session.synchronize()


def manual_seed(seed: int) -> None:
    """Seed every draw, as `gt.manual_seed`: the numbers are the same on every device."""
    random.manual_seed(seed)


manual_seed_all = manual_seed


def empty_cache() -> None:
    """Nothing: the workers give memory back when it is needed."""
