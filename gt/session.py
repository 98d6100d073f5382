"""Sessions: connecting, waiting, ending, and what is said at the end of the program."""

import atexit
import contextlib
import importlib
import pathlib
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from gt import _core, config
from gt.config import ShardConfig
from gt.errors import ConnectionLost, Error, NoWorker

if TYPE_CHECKING:
    from gt.nn import Module

Parallelized = TypeVar("Parallelized", bound="Module")

__all__ = [
    "connect",
    "disconnect",
    "gpu_workers",
    "init",
    "is_connected",
    "parallelize",
    "synchronize",
]

# Time for which the end of a program waits for failures still to come: an embedded worker may only
# now be starting; elsewhere there may be no worker.
EXIT_SECONDS = {"embedded": 20.0, "elsewhere": 1.0}
NOTICE_SECONDS = 1.0
POLL_SECONDS = 0.02  # a worker takes some hundred times that to start


def init() -> None:
    """Start the workers now, to overlap with other imports, instead of at the first operation."""
    _core.init()


def connect(address: str, *, workers: int = 0, worker_seconds: float = 60.0) -> None:
    """Connect to a dispatcher; tensors of an earlier session are void from here on.

    Args:
        address: `host:port`, or `unix:/path/of/socket`. A dispatcher on this host is then spoken to
            through shared memory, unless GT_NO_RING=1 asks to stay on TCP.
        workers: how many must have joined before this returns. A layout over all workers is one
            over those that have joined, so a program that spreads tensors says how many it wants.
        worker_seconds: how long this waits for them; and how long the first read (or synchronize,
            or an operation when the connection is full) waits where there is no worker.

    Raises:
        NoWorker: fewer workers have joined in that time; the session is open.
        ConnectionLost: nothing answers there within three seconds, it is no GT dispatcher, or it
            refuses (another version, a missing or wrong token in GT_TOKEN).
        ConfigError: a variable of the environment means nothing.
    """
    config.check()
    verbose, ring = config.is_verbose(), config.uses_rings()
    _core.connect(address, config.token(), verbose, ring, worker_seconds)
    register_exit()
    _notice_absent_log(address)
    _wait_for_workers(address, workers, worker_seconds)


def _notice_absent_log(address: str) -> None:
    """Say that a log is asked for which the dispatcher, who writes it, has not begun."""
    file = config.instruction_log()
    if file is not None and not pathlib.Path(file).exists():
        from gt import notices

        notices.say(
            f"GT_INSTRUCTION_LOG={file} writes nothing here: the log is the dispatcher's; start "
            f"the one at {address} with GT_INSTRUCTION_LOG={file} or --instruction-log"
        )


def _wait_for_workers(address: str, wanted: int, seconds: float) -> None:
    """Return when so many have joined; after a second, say how many there are."""
    start = time.monotonic()
    notice_due = True
    while (joined := _core.stats()["workers"]) < wanted:
        waited = time.monotonic() - start
        state = f"{joined} of {wanted} workers have joined the dispatcher at {address}"
        if waited > seconds:
            raise NoWorker(f"gt.connect: {state}, after {seconds:g} s")
        if notice_due and waited > NOTICE_SECONDS:
            from gt import notices

            notice_due = False
            notices.say(f"{state}; waiting for the others")
        time.sleep(POLL_SECONDS)


def disconnect() -> None:
    """End the session: its tensors are freed, workers that it started end."""
    _core.disconnect()


def is_connected() -> bool:
    """True if a session is open (the first operation opens one)."""
    return _core.is_connected()


def synchronize() -> None:
    """Wait until everything emitted so far has run.

    Raises:
        Error: the first failure that was not reported yet.
        NoWorker: the dispatcher has no worker, and none has joined within `connect`'s limit.
    """
    _core.synchronize()


def gpu_workers(count: int) -> None:
    """Let the embedded dispatcher start `count` workers; call it before the first operation."""
    _core.gpu_workers(count)


def parallelize(
    module: Parallelized, rules: Mapping[str, str | Sequence[str] | ShardConfig] | None = None
) -> Parallelized:
    """Give a module's parameters layouts by rules of their paths; its code needs no signals.

    The rules of GT_CONFIG and `gt.load_config` act by themselves when the module is first called;
    this is for doing it now, and for rules that are written in the program.

    Args:
        module: whose parameters are meant; `model.` in a pattern may stand for the module itself.
        rules: pattern to layout, of those that match a parameter the last holds, these after those
            of files. A pattern is a dotted path of a parameter or module, `*` a name or a part of
            one, `**` any number of names. A layout is `colpar`, `rowpar`, `vocab` or `replicate`,
            `shard(d)` of the parameter as it is stored, a list of placements for the dimensions of
            a mesh, or a ShardConfig.

    Returns:
        The module. A pattern that means nothing in it is a warning.

    Raises:
        ConfigError: a layout that cannot be meant, or a dimension that a parameter does not have.
    """
    from gt.nn import placing

    return placing.parallelize(module, rules)


class _Ending:
    """Ends the session with the program.

    Only the handlers of `atexit` hold it, and Python lets go of them when the last has run. So a
    handler that a program registered before it imported GT, which runs after those that are
    registered here, still finds its tensors.
    """

    registered = False

    def __init__(self) -> None:
        _Ending.registered = True
        self.waits = True

    def tell(self) -> None:
        """Print every failure that nobody has read, also those of work that still runs."""
        from gt import notices

        for text in self._failures():
            notices.say(f"a failure that nobody has read:\n{text}", notices.ERROR)

    def _failures(self) -> list[str]:
        """Nobody is kept waiting for long: not by a session without workers, nor after Ctrl-C."""
        failures = _core.unread_failures()
        interrupted = isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)
        if self.waits and _core.is_connected() and not interrupted:
            try:
                with _at_most(
                    EXIT_SECONDS["embedded" if "sessions" in _core.stats() else "elsewhere"]
                ):
                    _core.synchronize()
            except (ConnectionLost, KeyboardInterrupt, TimeoutError):
                self.waits = False
            except Error as error:
                failures.append(str(error))
            except RuntimeError:
                self.waits = False  # a forked child: the session is its parent's
        return failures + _core.unread_failures()

    def __del__(self) -> None:
        _Ending.registered = False
        self.tell()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _core.end_with_program()


def register_exit() -> None:
    """See to it that the session ends with the program."""
    if not _Ending.registered:
        # Logging closes its files at exit: after our last words if it is imported before them.
        importlib.import_module("gt.notices")
        atexit.register(_Ending().tell)


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """TimeoutError in what runs longer; the program ends, so its own alarm is not needed again."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _too_long(number: int, frame: object) -> None:  # noqa: ARG001 - a signal handler's
    raise TimeoutError
