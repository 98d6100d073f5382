"""Threads that make batches ahead of time. What a batch is stands in fetch.py."""

import copy
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass

from gt.utils.data.dataset import Dataset
from gt.utils.data.fetch import Fetcher

END = object()  # a worker's stream has ended
Init = Callable[[int], object]
MakeFetcher = Callable[[Dataset[object]], Fetcher]


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """What a worker of a loader knows of itself: its number of all, a seed, and its dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Dataset[object]


class _Current(threading.local):
    info: WorkerInfo | None = None
    fetcher: Fetcher | None = None


_current = _Current()


def get_worker_info() -> WorkerInfo | None:
    """In a worker of a `DataLoader`: its number, of how many, seed and dataset; else None."""
    return _current.info


class Workers:
    """One thread each, with a shallow copy of the dataset, which `worker_init_fn` may change."""

    def __init__(self, dataset: Dataset[object], count: int, seed: int, init: Init | None) -> None:
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix=f"gt-data-{at}") for at in range(count)
        ]
        self._started = [
            thread.submit(
                _start,
                WorkerInfo(id=at, num_workers=count, seed=seed + at, dataset=copy.copy(dataset)),
                init,
            )
            for at, thread in enumerate(self._threads)
        ]

    def __len__(self) -> int:
        return len(self._threads)

    def begin(self, make: MakeFetcher) -> None:
        """Start a round; raises what `worker_init_fn` raised."""
        for started, thread in zip(self._started, self._threads, strict=True):
            started.result()
            thread.submit(_begin, make).result()

    def submit(self, worker: int, index: object) -> "Future[object]":
        """Have a worker make the batch of `index`."""
        return self._threads[worker].submit(_fetch, index)

    def __del__(self) -> None:
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)


def _start(info: WorkerInfo, init: Init | None) -> None:
    _current.info = info
    if init is not None:
        init(info.id)


def _begin(make: MakeFetcher) -> None:
    assert _current.info is not None
    _current.fetcher = make(_current.info.dataset)


def _fetch(index: object) -> object:
    assert _current.fetcher is not None, index
    try:
        return _current.fetcher.fetch(index)
    except StopIteration:
        return END


class Queue:
    """What the workers are making, in the order of the batches; worker k makes every k-th."""

    def __init__(self, workers: Workers, indices: Iterator[object]) -> None:
        self._workers = workers
        self._indices = indices
        self._active = list(range(len(workers)))
        self._pending: deque[tuple[int, Future[object]]] = deque()
        self._turn = 0

    def __len__(self) -> int:
        return len(self._pending)

    def add(self) -> None:
        """Have the next worker make the next batch, if there is one."""
        if not self._active:
            return
        for index in self._indices:
            worker = self._active[self._turn % len(self._active)]
            self._turn += 1
            self._pending.append((worker, self._workers.submit(worker, index)))
            return

    def take(self, timeout: float) -> object:
        """The first batch, or END where its worker's stream has ended."""
        worker, future = self._pending.popleft()
        try:
            batch = future.result(timeout or None)
        except FutureTimeoutError:
            if future.done():
                raise  # the dataset's own
            raise RuntimeError(f"DataLoader timed out after {timeout} seconds") from None
        if batch is END and worker in self._active:
            self._active.remove(worker)
        return batch


def batches(
    workers: Workers, indices: Iterator[object], make: MakeFetcher, ahead: int, timeout: float
) -> Iterator[object]:
    """The batches of `indices` in their order, `ahead` of them early by each worker.

    Raises:
        RuntimeError: a batch took longer than `timeout` seconds (0: no limit).
    """
    workers.begin(make)
    queue = Queue(workers, indices)
    for _ in range(ahead * len(workers)):
        queue.add()
    while queue:
        batch = queue.take(timeout)
        queue.add()
        if batch is not END:
            yield batch
