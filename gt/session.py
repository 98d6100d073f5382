"""Sessions: connecting, waiting, ending, and what is said at the end of the program."""

import atexit
import sys
import warnings

from gt import _core, config
from gt._core import Tensor

__all__ = [
    "connect",
    "disconnect",
    "distribute",
    "gpu_workers",
    "init",
    "is_connected",
    "synchronize",
]

_registered: list[bool] = []


def init() -> None:
    """Start the workers now, to overlap with other imports, instead of at the first operation."""
    _core.init()


def connect(address: str) -> None:
    """Connect to a dispatcher; tensors of an earlier session are void from here on.

    Args:
        address: `host:port`, or `unix:/path/of/socket`. A dispatcher on this host is then spoken to
            through shared memory, unless GT_NO_RING=1 asks to stay on TCP.

    Raises:
        ConnectionLost: nothing answers there within three seconds, it is no GT dispatcher, or it
            refuses (another version, a missing or wrong token in GT_TOKEN).
    """
    verbose, ring = config.flag("GT_VERBOSE"), not config.flag("GT_NO_RING")
    _core.connect(address, config.token(), verbose, ring)
    register_exit()


def disconnect() -> None:
    """End the session: its tensors are freed, workers that it started end."""
    _core.disconnect()


def is_connected() -> bool:
    """Whether a session is open (the first operation opens one)."""
    return _core.is_connected()


def synchronize() -> None:
    """Wait until everything emitted so far has run.

    Raises:
        Error: the first failure that no read has raised.
    """
    _core.synchronize()


def gpu_workers(count: int) -> None:
    """Let the embedded dispatcher start `count` workers; call it before the first operation."""
    _core.gpu_workers(count)


def distribute(tensor: Tensor, dim: int | None = None) -> Tensor:
    """The same tensor spread over all workers: cut along `dim`, or held whole by each.

    What follows stays spread where the operator allows; the numbers are the same either way.

    Args:
        tensor: any tensor.
        dim: the dimension to cut; any size will do, also one smaller than the number of workers.
            None replicates.
    """
    return _core.distribute(tensor, dim)


def register_exit() -> None:
    """See to it that the session ends with the program."""
    if not _registered:
        _registered.append(True)
        atexit.register(_at_exit)


def _at_exit() -> None:
    for text in _core.unread_failures():
        sys.stderr.write(f"gt: a failure that nobody has read:\n{text}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _core.disconnect()
