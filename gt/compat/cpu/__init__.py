"""`gt.cpu`: queries about the CPU, which every machine has; nothing here affects placement."""

import importlib

from gt.compat import missing
from gt.sessions.session import synchronize as finish_work

__all__ = ["amp", "device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1, as in PyTorch."""
    return 1


def synchronize(device: object = None) -> None:  # noqa: ARG001 - accepted and ignored
    """Wait until everything emitted so far has run."""
    finish_work()


def __getattr__(name: str) -> object:
    if name == "amp":
        return importlib.import_module("gt.cpu.amp")
    raise missing.attribute_error(__name__, name)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
