"""`gt.multiprocessing`: Python's `multiprocessing`, and processes that each run a function.

A tensor goes through a queue by value. A process that uses GT has its own session, so it must be
started by `spawn`; GT's program drives all workers and needs no process for each rank.
"""

import multiprocessing
import multiprocessing.connection
import signal
import traceback
from collections.abc import Callable
from multiprocessing import *  # noqa: F403 - PyTorch's module has these, too
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from gt.compat import misses
from gt.errors import InvalidValue

_STRATEGIES = {"file_descriptor", "file_system"}


class ProcessExitedException(Exception):
    """A process of `spawn` was ended by a signal or with an exit code."""

    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg, error_index, error_pid, exit_code, signal_name)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid
        self.exit_code, self.signal_name = exit_code, signal_name

    def __str__(self) -> str:
        return self.msg


class ProcessRaisedException(Exception):
    """A function of `spawn` raised."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg, error_index, error_pid)
        self.msg, self.error_index, self.error_pid = msg, error_index, error_pid

    def __str__(self) -> str:
        return self.msg


class ProcessContext:
    """The processes of a `spawn` that has not joined them yet."""

    def __init__(self, processes: list[BaseProcess], reports: list[Connection]) -> None:
        self.processes = processes
        self._reports = reports
        self.sentinels = {process.sentinel: at for at, process in enumerate(processes)}

    def pids(self) -> list[int | None]:
        """The processes' numbers."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one process fails or all that are ready have ended; True if all have ended.

        Args:
            timeout: Seconds after which to give up; no limit if not given.
            grace_period: Seconds for the others to end by themselves after one has failed.

        Raises:
            ProcessRaisedException: A function raised; the text has its traceback.
            ProcessExitedException: A process ended in another way.
        """
        ready = (
            multiprocessing.connection.wait(list(self.sentinels), timeout) if self.sentinels else []
        )
        for sentinel in ready:
            assert isinstance(sentinel, int), "a process is waited for by its sentinel"
            at = self.sentinels.pop(sentinel)
            self.processes[at].join()
            if self.processes[at].exitcode:
                self._end(grace_period)
                raise self._failure(at)
        return not self.sentinels

    def _end(self, grace_period: float | None) -> None:
        for process in self.processes if grace_period is not None else ():
            process.join(grace_period)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(30 if grace_period is None else grace_period)
            if process.is_alive():
                process.kill()
            process.join()

    def _failure(self, at: int) -> Exception:
        process, report = self.processes[at], self._reports[at]
        pid, code = process.pid or 0, process.exitcode or 0
        try:
            traceback_text = report.recv() if report.poll() else None
        except EOFError:
            traceback_text = None
        if traceback_text is not None:
            text = f"\n\n-- Process {at} terminated with the following error:\n{traceback_text}"
            return ProcessRaisedException(text, at, pid)
        name = _signal_name(-code) if code < 0 else None
        text = f"process {at} terminated with " + (
            f"signal {name}" if name else f"exit code {code}"
        )
        return ProcessExitedException(text, at, pid, code, name)


SpawnContext = ProcessContext


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"<Unknown signal {number}>"


def _run(fn: Callable[..., object], at: int, args: tuple[Any, ...], report: Connection) -> None:
    """Body of a process: calls the function and reports the exception that it raises."""
    try:
        fn(at, *args)
    except KeyboardInterrupt:
        pass  # the parent gets it, too
    except Exception:  # noqa: BLE001 - any exception: the parent raises it
        report.send(traceback.format_exc())
        raise SystemExit(1) from None


def start_processes(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call `fn(i, *args)` in process i of `nprocs`.

    Each process has its own session and workers, and `init_process_group` for several is an error:
    there are no collectives between them.

    Args:
        fn: A function at the top level of a module, which the processes import.
        args: Its further arguments, which are pickled.
        nprocs: Number of processes.
        join: Whether to wait for all; else the context, which has `join()`, is returned.
        daemon: Whether they end with this program.
        start_method: "spawn" or "forkserver"; after "fork" a process cannot use GT.

    Raises:
        ProcessRaisedException: A function raised, with `join`.
        ProcessExitedException: A process ended in another way, with `join`.
    """
    context = multiprocessing.get_context(start_method)
    processes: list[BaseProcess] = []
    reports: list[Connection] = []
    for at in range(nprocs):
        here, there = context.Pipe(duplex=False)
        arguments = (fn, at, tuple(args), there)
        process = context.Process(target=_run, args=arguments, daemon=daemon)  # type: ignore[attr-defined]
        process.start()
        there.close()
        processes.append(process)
        reports.append(here)
    started = ProcessContext(processes, reports)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` under PyTorch's better-known name."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def get_all_sharing_strategies() -> set[str]:
    """PyTorch's names for ways of sharing memory; GT's tensors are passed by value."""
    return _STRATEGIES


def get_sharing_strategy() -> str:
    """The strategy set last, or PyTorch's first one."""
    return _Strategy.chosen


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted without effect: GT's tensors are passed by value.

    Args:
        new_strategy: One of `get_all_sharing_strategies`.

    Raises:
        InvalidValue: It is another word.
    """
    if new_strategy not in _STRATEGIES:
        raise InvalidValue(f"set_sharing_strategy: {new_strategy!r} is none of {_STRATEGIES}")
    _Strategy.chosen = new_strategy


class _Strategy:
    chosen = "file_descriptor"


_OWN = [
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]
__all__ = [*multiprocessing.__all__, *_OWN]  # noqa: PLE0604 - Python's names

__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the names that this module adds to those of `multiprocessing`."""
    return _OWN
