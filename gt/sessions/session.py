"""Sessions: connecting, waiting, ending, and the report at the end of the program."""

import atexit
import contextlib
import importlib
import math
import pathlib
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from gt import _core, config
from gt.config import ShardConfig
from gt.errors import ConnectionLost, Error, InvalidValue, NoWorker

if TYPE_CHECKING:
    from gt.nn import Module

Parallelized = TypeVar("Parallelized", bound="Module")

__all__ = [
    "cancel",
    "connect",
    "disconnect",
    "gpu_workers",
    "init",
    "is_connected",
    "parallelize",
    "rebalance",
    "synchronize",
]

# Time for which the end of a program waits for failures still to come: an embedded worker may only
# now be starting; elsewhere there may be no worker.
EXIT_SECONDS = {"embedded": 20.0, "elsewhere": 1.0}
NOTICE_SECONDS = 1.0
POLL_SECONDS = 0.02  # a worker takes about a hundred times as long to start


def init() -> None:
    """Start the workers now, in parallel with other imports, and not at the first operation."""
    _core.init()


def connect(
    address: str,
    *,
    workers: int = 0,
    worker_seconds: float = 60.0,
    wait: float | None = None,
    session: str | None = None,
    lease: float | None = None,
) -> None:
    """Connect to a dispatcher; tensors of an earlier session become invalid.

    A session with a name outlives this program: when it ends, is killed or disconnects, the
    dispatcher keeps what was published (`gt.publish`) and the state of the random generator for
    the lease, and the next client that names the session finds it in `gt.session`. Everything else
    of the program is freed: tensors that were not published, the tape, signals and layouts, which
    the next program sets itself. A session without a name ends with its program.

    Args:
        address: `host:port`, or `unix:/path/of/socket`. The connection to a dispatcher on this host
            uses shared memory, unless GT_NO_RING=1 keeps it on TCP.
        workers: number of workers that must have joined before this returns. A layout over all
            workers covers those that have joined, so a program that distributes tensors should set
            it; `gt.rebalance()` takes in those that come later.
        worker_seconds: limit of the wait for them; and of the wait of the first read (or
            synchronize, or an operation on a full connection) without a worker.
        wait: shorter name of `worker_seconds`.
        session: name of the session: letters, digits, `.`, `_`, `-` and `/`, 64 at most. It is
            opened, or attached to where it exists. It has one client at a time and one user.
        lease: seconds for which a session with a name waits for its next client, a week at most;
            the dispatcher's `--lease-seconds`, which is 600, if not given. 0 ends it with this
            program.

    Raises:
        InvalidValue: a lease without a session, or one that is no number of seconds up to a week.
        NoWorker: fewer workers have joined in that time; the session stays open.
        ConnectionLost: nothing answers there within three seconds, it is no GT dispatcher, or it
            refuses (another version, a missing or wrong token in GT_TOKEN, a session that has a
            client or belongs to another user), or GT_TLS_CA does not fit the certificate there.
        ConfigError: an environment variable has no meaning.
    """
    lease_s = _lease(session, lease)
    worker_seconds = worker_seconds if wait is None else wait
    config.check()
    verbose, ring = config.is_verbose(), config.uses_rings()
    _core.connect(
        address,
        config.token(),
        verbose,
        ring,
        worker_seconds,
        session,
        lease_s,
        config.tls_ca(),
    )
    register_exit()
    _notice_absent_log(address)
    _wait_for_workers(address, workers, worker_seconds)


def _lease(session: str | None, lease: float | None) -> int | None:
    """The lease in whole seconds, a part of one counting as one."""
    if lease is None:
        return None
    if session is None:
        raise InvalidValue("gt.connect: a lease is of a session: give session=NAME too")
    if not 0 <= lease <= _core.LEASE_SECONDS_MAX:
        raise InvalidValue(
            f"gt.connect: lease={lease!r}; expected 0 to {_core.LEASE_SECONDS_MAX} seconds (a week)"
        )
    return math.ceil(lease)


def _notice_absent_log(address: str) -> None:
    """Report that a requested log will be missing: the dispatcher, which writes it, has none."""
    file = config.instruction_log()
    if file is not None and not pathlib.Path(file).exists():
        from gt.sessions import notices

        notices.say(
            f"GT_INSTRUCTION_LOG={file} writes nothing here: the log is the dispatcher's; start "
            f"the one at {address} with GT_INSTRUCTION_LOG={file} or --instruction-log"
        )


def _wait_for_workers(address: str, wanted: int, seconds: float) -> None:
    """Return when `wanted` workers have joined; after a second, report their number."""
    start = time.monotonic()
    notice_due = True
    while (joined := _core.stats()["workers"]) < wanted:
        waited = time.monotonic() - start
        state = f"{joined} of {wanted} workers have joined the dispatcher at {address}"
        if waited > seconds:
            raise NoWorker(f"gt.connect: {state}, after {seconds:g} s")
        if notice_due and waited > NOTICE_SECONDS:
            from gt.sessions import notices

            notice_due = False
            notices.say(f"{state}; waiting for the others")
        time.sleep(POLL_SECONDS)


def cancel() -> None:
    """Drop what this session has queued and what has not begun; returns at once.

    It is for a queue that would take minutes: what was computed before stays, and the next read of
    it, or of something new, waits for the one operation that runs. Reading a dropped value, or one
    that depends on it, raises a `gt.CancelledError`. A dropped step of `gt.optim.SGD`, `Adam` or
    `AdamW` leaves parameters and moments as they were, so a step may be half done; every other
    in-place write that is dropped leaves a dropped value. The queue is the whole session's, also
    what other threads queued; other sessions lose nothing.

    Ctrl-C does the same where the program waits for GT: in a read or `gt.synchronize()` when half a
    second more is not enough to answer it, and in an operation that waits for room in the queue.
    """
    _core.cancel()


def disconnect() -> None:
    """End the session: its tensors are freed, and workers that it started end."""
    _core.disconnect()


def is_connected() -> bool:
    """True if a session is open (the first operation opens one)."""
    return _core.is_connected()


def synchronize() -> None:
    """Wait until everything emitted so far has run.

    Raises:
        Error: the first failure that has not been reported.
        NoWorker: the dispatcher has no worker, and none has joined within the limit of `connect`.
    """
    _core.synchronize()


def rebalance() -> int:
    """Let this session use the workers that are there now, and not only those that it began with.

    A layout is decided over the workers that there are at that time. When others join later (one
    line says so), what the session has stays where it is. This function gives every tensor the
    layout that it would have if it were made now: what was cut or copied over all workers is so
    over all that are there, what a signal places follows the signal, and a session whose worker is
    shared moves to one with fewer sessions. Layouts over workers that the program has chosen, over
    meshes of several dimensions, and shards of unequal sizes stay. Each tensor moves at its next
    use; values keep their bits, `gt.explain` says what happened.

    Returns:
        The number of values that move, those that are published among them.
    """
    return int(_core.rebalance().removeprefix("values="))


def gpu_workers(count: int) -> None:
    """Make the embedded dispatcher start `count` workers; call it before the first operation."""
    _core.gpu_workers(count)


def parallelize(
    module: Parallelized, rules: Mapping[str, str | Sequence[str] | ShardConfig] | None = None
) -> Parallelized:
    """Give a module's parameters layouts by rules for their paths; its code needs no signals.

    The rules of GT_CONFIG and `gt.load_config` apply by themselves when the module is first called;
    this function applies them at once, and takes rules written in the program.

    Args:
        module: the module; `model.` in a pattern may stand for the module itself.
        rules: pattern to layout; the last one that matches a parameter applies, and these come
            after those of files. A pattern is a dotted path of a parameter or module, with `*` for
            a name or a part of one and `**` for any number of names. A layout is `colpar`,
            `rowpar`, `vocab` or `replicate`, `shard(d)` of the parameter as it is stored, a list of
            placements for the dimensions of a mesh, or a ShardConfig.

    Returns:
        The module. A pattern without a match is a warning.

    Raises:
        ConfigError: an invalid layout, or a dimension that a parameter does not have.
    """
    from gt.nn import placing

    return placing.parallelize(module, rules)


class _Ending:
    """Ends the session with the program.

    Only the handlers of `atexit` hold it, and Python drops them when the last has run. So a handler
    that a program registered before it imported GT, which runs after those registered here, still
    finds its tensors.
    """

    registered = False

    def __init__(self) -> None:
        _Ending.registered = True
        self.waits = True

    def tell(self) -> None:
        """Print every failure that nobody has read, also failures of work that still runs."""
        from gt.sessions import notices

        for text in self._failures():
            notices.say(f"a failure that nobody has read:\n{text}", notices.ERROR)

    def _failures(self) -> list[str]:
        """The failures, with bounded waiting, also for a session without workers and
        after Ctrl-C.
        """
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
                self.waits = False  # a forked child: the session belongs to its parent
        return failures + _core.unread_failures()

    def __del__(self) -> None:
        _Ending.registered = False
        self.tell()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _core.end_with_program()


def register_exit() -> None:
    """Registers the end of the session with the end of the program."""
    if not _Ending.registered:
        # Logging, imported earlier, closes its files only after the last messages here.
        importlib.import_module("gt.notices")
        atexit.register(_Ending().tell)


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in a block that takes longer; the program ends, so its own alarm is not
    restored.
    """
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _too_long(number: int, frame: object) -> None:  # noqa: ARG001 - a signal handler's
    raise TimeoutError
