"""The workers of a loader, seen from its process: start, requests, results and end.

worker_process.py is their side, parcels.py the format of their batches.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection as links
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import NoReturn

from gt.utils.data import parcels
from gt.utils.data.held import Held, tensors
from gt.utils.data.parcels import End, Parcel, Raised
from gt.utils.data.worker_process import Apart, Ask, Begin, Task, run

# Seconds for a worker to finish its current batch when it is told to end.
END_SECONDS = 5.0
# This process's ends of all workers' connections: a forked child closes them.
_ends: weakref.WeakSet[Connection] = weakref.WeakSet()


def context_of(chosen: object, num_workers: int) -> BaseContext | None:
    """The start method that a user names, or a context of `multiprocessing`.

    Raises:
        ValueError: there is no such method, or no workers.
        TypeError: the value is neither a name nor a context.
    """
    if chosen is None:
        return None
    if num_workers == 0:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading "
            f"(num_workers > 0), but got num_workers={num_workers}"
        )
    if isinstance(chosen, str):
        methods = multiprocessing.get_all_start_methods()
        if chosen not in methods:
            raise ValueError(
                f"multiprocessing_context option should specify a valid start method in {methods!r}"
                f", but got multiprocessing_context={chosen!r}"
            )
        return multiprocessing.get_context(chosen)
    if not isinstance(chosen, BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string "
            f"specifying the start method, but got multiprocessing_context={chosen}"
        )
    return chosen


class Workers:
    """Processes that make batches; each has a copy of the dataset from their start."""

    def __init__(self, task: Task, context: BaseContext | None) -> None:
        if context is None:
            method = multiprocessing.get_start_method(allow_none=True) or "fork"
            context = multiprocessing.get_context(method)
        self._owner = os.getpid()
        self._connections: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self.failure: RuntimeError | None = None
        if context.get_start_method() == "fork":
            roots = [task.dataset, task.collate, task.init]
            task = task.with_held([Held.of(tensor) for tensor in tensors(roots)])
        try:
            for worker in range(task.count):
                self._start(context, task, worker)
        except BaseException:
            self.close()
            raise

    def _start(self, context: BaseContext, task: Task, worker: int) -> None:
        ours, theirs = context.Pipe()
        _ends.add(ours)
        self._connections.append(ours)
        # Includes those of other loaders, or a worker would not notice that its loader is gone.
        arguments = (Apart(), theirs, task.with_foreign(list(_ends)), worker)
        process = context.Process(target=run, args=arguments, daemon=True)  # type: ignore[attr-defined] # every context has it
        process.start()
        theirs.close()
        self._processes.append(process)

    def __len__(self) -> int:
        return len(self._connections)

    def ask(self, worker: int, request: Begin | Ask) -> None:
        """Send a request; if it cannot be delivered, `receive` raises the error."""
        try:
            self._connections[worker].send(request)
        except (BrokenPipeError, ConnectionResetError):
            self._raise_dead()

    def receive(self, timeout: float | None) -> list[Parcel]:
        """Parcels that have arrived, or that arrive first; none after `timeout` seconds.

        Raises:
            RuntimeError: a worker has died.
        """
        if self.failure is not None:
            raise self.failure
        sentinels = [process.sentinel for process in self._processes]
        ready = links.wait([*self._connections, *sentinels], timeout)
        come = [one for one in ready if isinstance(one, Connection)]
        try:
            results = [parcels.receive(one) for one in come]
        except (EOFError, OSError):
            self._raise_dead()
        if ready and not results:
            self._raise_dead()
        return results

    def _raise_dead(self) -> NoReturn:
        """Raise RuntimeError for the workers that have ended; the first of them gives
        the reason.
        """
        ended = links.wait([process.sentinel for process in self._processes], END_SECONDS)
        dead = [process for process in self._processes if process.sentinel in ended]
        for process in dead:
            process.join()
        if not dead:
            raise RuntimeError("a DataLoader worker has closed its connection, and lives")
        self.failure = RuntimeError(
            f"DataLoader worker (pid(s) {', '.join(str(one.pid) for one in dead)}) "
            "exited unexpectedly"
        )
        self.failure.__cause__ = _reason(dead[0])
        failure = self.failure
        self.close()
        raise failure

    def close(self) -> None:
        """End the processes: after their current batch, or by force if that takes too long."""
        if self._owner != os.getpid():
            return  # in a child that was forked meanwhile
        for connection in self._connections:
            with contextlib.suppress(OSError):  # it has ended already
                connection.send(None)
            connection.close()
        end = time.monotonic() + END_SECONDS
        for process in self._processes:
            process.join(max(0.0, end - time.monotonic()))
        for process in self._processes:
            if process.is_alive():
                process.kill()
                process.join()
        self._connections, self._processes = [], []

    def __del__(self) -> None:
        self.close()


def _reason(process: BaseProcess) -> RuntimeError:
    code = process.exitcode or 0
    if code < 0:
        name = signal.strsignal(-code)
        return RuntimeError(f"DataLoader worker (pid {process.pid}) is killed by signal: {name}. ")
    return RuntimeError(
        f"DataLoader worker (pid {process.pid}) exited unexpectedly with exit code {code}. Details "
        "are lost due to multiprocessing. Rerunning with num_workers=0 may give better error trace."
    )


class Batches:
    """The batches of one round of a loader, which its workers make ahead.

    Worker k makes every k-th batch. They are returned in the order of the indices, or as they
    arrive.

    Args:
        ahead: number of batches that each worker makes in advance.
        timeout: seconds for a batch; 0 is no limit.
    """

    def __init__(
        self,
        workers: Workers,
        indices: Iterable[object],
        *,
        round_number: int,
        ahead: int,
        timeout: float,
        in_order: bool,
        close: Callable[[], None] | None,
    ) -> None:
        self._workers, self._indices = workers, iter(indices)
        self._round, self._ahead = round_number, ahead
        self._timeout, self._in_order = timeout, in_order
        self._close = close
        self._active = dict.fromkeys(range(len(workers)), 0)  # number of requested batches
        self._cycle: Iterator[int] = itertools.cycle(range(len(workers)))
        self._owners: dict[int, int] = {}  # worker of each requested batch
        self._made: dict[int, Parcel] = {}
        self._asked = 0
        for worker in self._active:
            workers.ask(worker, Begin(round_number))
        for _ in range(ahead * len(workers)):
            self._ask()

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> object:
        while self._owners:
            number = min(self._owners) if self._in_order else next(iter(self._made), None)
            if number is None or number not in self._made:
                self._receive()
                continue
            worker = self._owners.pop(number)
            where = f"in DataLoader worker process {worker}"
            batch = _opened(self._made.pop(number), where)
            if worker in self._active:
                self._active[worker] -= 1
            if isinstance(batch, End):
                self._active.pop(worker, None)
            self._ask()
            if isinstance(batch, Raised):
                batch.reraise()
            if not isinstance(batch, End):
                return batch
        if self._close is not None:
            self._close()
        raise StopIteration

    def _ask(self) -> None:
        """Request the next batch from the next worker, if there is one."""
        if not self._active:
            return
        try:
            index = next(self._indices)
        except StopIteration:
            return
        worker = self._next_worker()
        self._owners[self._asked] = worker
        self._active[worker] += 1
        self._workers.ask(worker, Ask(self._round, self._asked, index))
        self._asked += 1

    def _next_worker(self) -> int:
        """The next worker in turn; if the order is free, one with the fewest requests."""
        if not self._in_order:
            return min(self._active, key=lambda worker: self._active[worker])
        return next(worker for worker in self._cycle if worker in self._active)

    def _receive(self) -> None:
        results = self._workers.receive(self._timeout or None)
        if not results:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        for parcel in results:
            if parcel.round == self._round:
                self._made[parcel.number] = parcel
            else:
                parcel.drop()  # from a round that was left early

    def __del__(self) -> None:
        for parcel in self._made.values():
            parcel.drop()


def _opened(parcel: Parcel, where: str) -> object:
    try:
        return parcel.opened()
    except Exception:  # noqa: BLE001 - of the user's classes, or a tensor that cannot be made
        return Raised(where)
