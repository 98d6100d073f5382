"""The process of a worker: its seeds, its loop.

fetch.py makes a batch, parcels.py packs it; workers.py is the loader's side.
"""

from __future__ import annotations

import multiprocessing
import queue
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing import connection as links
from multiprocessing.connection import Connection

import numpy as np

from gt import _core, config
from gt.compat.random import manual_seed
from gt.config import scopes
from gt.utils.data import parcels
from gt.utils.data.collate import Collate
from gt.utils.data.dataset import Dataset
from gt.utils.data.fetch import Fetcher
from gt.utils.data.held import Held
from gt.utils.data.parcels import End, Raised

Init = Callable[[int], object]


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """A worker's view of itself in its loader: its number, the number of workers, a seed, its
    dataset.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Dataset[object]


class _Current:
    info: WorkerInfo | None = None


_current = _Current()


def get_worker_info() -> WorkerInfo | None:
    """In a worker of a `DataLoader`: its number, of how many, seed and dataset; else None."""
    return _current.info


@dataclass(frozen=True)
class Begin:
    """Request to start the dataset again."""

    round: int


@dataclass(frozen=True)
class Ask:
    """Request for a batch."""

    round: int
    number: int
    index: object


@dataclass(frozen=True)
class Apart:
    """Marks a process as a worker's: it does not use its parent's session.

    It is the first of a worker's arguments, so that it takes effect before the dataset is
    unpickled.
    """

    def __reduce__(self) -> tuple[Callable[[], Apart], tuple[()]]:
        return set_apart, ()


def set_apart() -> Apart:
    """Separates this process from its parent's session, from here on."""
    _core.leave_parent()
    config.stand_alone()
    scopes.forget()
    return Apart()


@dataclass(frozen=True, kw_only=True)
class Task:
    """Settings that all workers of a loader get."""

    dataset: Dataset[object]
    collate: Collate
    batches: bool
    drop_last: bool
    count: int
    seed: int
    init: Init | None
    held: list[Held] = field(default_factory=list)
    foreign: list[Connection] = field(default_factory=list)

    def with_held(self, held: list[Held]) -> Task:
        return replace(self, held=held)

    def with_foreign(self, foreign: list[Connection]) -> Task:
        """A copy with the parent's connections, which a forked worker closes."""
        return replace(self, foreign=foreign)

    def __getstate__(self) -> dict[str, object]:
        """State for a process that is not forked: pickle passes it everything of its parent."""
        return self.__dict__ | {"held": [], "foreign": []}


def run(_apart: Apart, connection: Connection, task: Task, worker: int) -> None:
    """Make batches on request, until the loader is gone."""
    try:
        set_apart()
        for other in task.foreign:
            other.close()
        _seed(task.seed, worker)
        held = {id(one.tensor): one for one in task.held}
        scopes.at_session_begin.append(lambda: _bring(held))
        _current.info = WorkerInfo(
            id=worker, num_workers=task.count, seed=task.seed + worker, dataset=task.dataset
        )
        _serve(connection, task, held)
    except (KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        return  # the parent handles it too, or is gone


def _seed(base: int, worker: int) -> None:
    """Seed all generators of a program, as PyTorch's workers do."""
    random.seed(base + worker)
    manual_seed(base + worker)
    words = [worker, base & (2**32 - 1), base >> 32, 0]
    np.random.seed(np.random.SeedSequence(words).generate_state(4))  # noqa: NPY002 - users' code draws from it
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
        torch.manual_seed(base + worker)


def _bring(held: dict[int, Held]) -> None:
    """Called when a session begins: from here on the tensors themselves are used, which may be
    written.
    """
    tensors = list(held.values())
    held.clear()
    for one in tensors:
        one.bring()


def _serve(connection: Connection, task: Task, held: dict[int, Held]) -> None:
    assert _current.info is not None, "set before"
    worker = _current.info.id
    where = f"in DataLoader worker process {worker}"
    asked: queue.SimpleQueue[Begin | Ask | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, asked), daemon=True).start()
    failure = _failure(task.init, worker, where)
    source: Fetcher | Raised | End = End()
    while (request := asked.get()) is not None:
        if isinstance(request, Begin):
            source = failure or _begun(task, held, where)
            continue
        batch = _fetched(source, request.index, where) if isinstance(source, Fetcher) else source
        if isinstance(batch, End):
            source = batch  # an exhausted iterator is not called again
        parcels.send(connection, (request.round, request.number), batch, where)


def _listen(connection: Connection, asked: queue.SimpleQueue[Begin | Ask | None]) -> None:
    """Pass on requests, so that the sender never blocks; None when the loader is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker is a child"
    try:
        while connection in links.wait([connection, parent.sentinel]):
            request = connection.recv()
            if request is None:
                break
            asked.put(request)
    except (EOFError, OSError):
        pass
    finally:
        asked.put(None)


def _failure(init: Init | None, worker: int, where: str) -> Raised | None:
    try:
        if init is not None:
            init(worker)
    except Exception:  # noqa: BLE001 - the user's, raised in the loader's process
        return Raised(where)
    return None


def _begun(task: Task, held: dict[int, Held], where: str) -> Fetcher | Raised:
    try:
        return Fetcher(
            task.dataset,
            task.collate,
            batches=task.batches,
            drop_last=task.drop_last,
            held=held,
        )
    except Exception:  # noqa: BLE001 - as above
        return Raised(where)


def _fetched(source: Fetcher, index: object, where: str) -> object:
    try:
        return source.fetch(index)
    except StopIteration:
        return End() if source.is_stream else Raised(where)
    except Exception:  # noqa: BLE001 - as above
        return Raised(where)
