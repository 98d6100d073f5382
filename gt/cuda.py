"""`gt.cuda`: what scripts ask before they say `.cuda()`, which here places nothing.

The workers have the GPUs; the client neither needs one nor talks to one.
"""

from gt import config, session

__all__ = ["device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """Whether this machine has GPUs, each of which gets a worker."""
    return device_count() > 0


def device_count() -> int:
    """GPUs of this machine that CUDA_VISIBLE_DEVICES leaves."""
    return config.gpu_count()


def synchronize(device: object = None) -> None:  # noqa: ARG001 - accepted, and places nothing
    """Wait until everything emitted so far has run."""
    session.synchronize()
