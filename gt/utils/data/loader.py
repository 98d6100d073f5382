"""The loader: a dataset, an order and a way to make batches, with PyTorch's arguments."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np

from gt.tensors.draws import Generator, next_draw
from gt.utils.data.collate import Collate, default_collate, default_convert
from gt.utils.data.dataset import Dataset, IterableDataset, length
from gt.utils.data.fetch import Fetcher
from gt.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from gt.utils.data.worker_process import Task
from gt.utils.data.workers import Batches, Workers, context_of

T_co = TypeVar("T_co", covariant=True)
FIXED = {"batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"}


class _Endless(Sampler[None]):
    """Sampler for a stream, which has no indices."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader(Generic[T_co]):
    """Batches of a dataset, in order or shuffled.

    As torch.utils.data.DataLoader: `num_workers` are processes, forked unless the program or
    `multiprocessing_context` says otherwise, with PyTorch's seeds for Python's, numpy's and GT's
    generators. `pin_memory` and `pin_memory_device` are accepted and change nothing: the placement
    of batches is GT's choice. A `TensorDataset` (or `Subset` of one) with the default collation
    gives a batch by one index operation a tensor.

    A worker does not use the session. Results of the default collation (from numpy arrays, numbers
    and PyTorch's tensors) and of a `TensorDataset` become GT's tensors in the program. A dataset or
    `collate_fn` that calls GT's functions works too: its worker then starts its own session, in a
    second process that computes with GT's CPU kernels, and receives the tensors that the dataset
    refers to. Writing to them there does not change the program's tensors.

    Args:
        num_workers: 0 makes each batch when it is asked for; more make `prefetch_factor` (2) each
            ahead of time.
        timeout: seconds that a worker may take for a batch; 0 is no limit.
        worker_init_fn: called in each worker with its number, before the first batch.
        multiprocessing_context: "fork", "spawn", "forkserver", or a context of `multiprocessing`.
        persistent_workers: the workers live on for the next round.
        in_order: False gives batches as they are made.

    Raises:
        ValueError: arguments that exclude each other.
        RuntimeError: while it is iterated: a worker has died, or takes too long. An exception of a
            worker is raised again, with its class and its traceback as text.
    """

    _is_made = False

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[object] | Iterable[object] | None = None,
        batch_sampler: Sampler[list[object]] | Iterable[list[object]] | None = None,
        num_workers: int = 0,
        collate_fn: Collate | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: object = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        context = context_of(multiprocessing_context, num_workers)
        if isinstance(dataset, IterableDataset):
            _check_stream(shuffle, sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                    "and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive with "
                "drop_last"
            )
        if sampler is None:
            sampler = _default_sampler(dataset, shuffle, generator)
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)  # type: ignore[arg-type,assignment] # of any index
        if collate_fn is None:
            collate_fn = default_convert if batch_sampler is None else default_collate
        self.dataset = dataset
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.num_workers, self.collate_fn = num_workers, collate_fn
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.timeout, self.worker_init_fn, self.generator = timeout, worker_init_fn, generator
        self.multiprocessing_context, self.in_order = context, in_order
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.persistent_workers = persistent_workers
        self._workers: Workers | None = None
        self._rounds = itertools.count()
        self._is_made = True

    def __setattr__(self, name: str, value: object) -> None:
        if self._is_made and name in FIXED:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
            )
        super().__setattr__(name, value)

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return length(self.sampler if self.batch_sampler is None else self.batch_sampler)
        count = length(self.dataset)
        if self.batch_size is None:
            return count
        return (count if self.drop_last else count + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[Any]:  # results of collate_fn
        order = self.sampler if self.batch_sampler is None else self.batch_sampler
        has_batches = self.batch_sampler is not None
        if self.num_workers == 0:
            if self.timeout != 0:
                raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
            _seed(self.generator)  # always, so that the number of workers changes no order
            fetcher = Fetcher(
                self.dataset, self.collate_fn, batches=has_batches, drop_last=self.drop_last
            )
            return self._one_by_one(fetcher, iter(order))
        workers = self._workers
        if workers is None or workers.failure is not None:
            workers = self._started(has_batches=has_batches)
        if self.persistent_workers:
            self._workers = workers
        return Batches(
            workers,
            order,
            round_number=next(self._rounds),
            ahead=self.prefetch_factor or 1,
            timeout=self.timeout,
            in_order=self.in_order,
            close=None if self.persistent_workers else workers.close,
        )

    def _started(self, *, has_batches: bool) -> "Workers":
        task = Task(
            dataset=self.dataset,
            collate=self.collate_fn,
            batches=has_batches,
            drop_last=self.drop_last,
            count=self.num_workers,
            seed=_seed(self.generator),
            init=self.worker_init_fn,
        )
        return Workers(task, self.multiprocessing_context)

    @staticmethod
    def _one_by_one(fetcher: Fetcher, order: Iterator[object]) -> Iterator[object]:
        for index in order:
            try:
                batch = fetcher.fetch(index)
            except StopIteration:
                return
            yield batch


def _default_sampler(
    dataset: Dataset[object], shuffle: bool | None, generator: Generator | None
) -> Sampler[object]:
    if isinstance(dataset, IterableDataset):
        return _Endless()
    if shuffle:
        return RandomSampler(dataset, generator=generator)  # type: ignore[arg-type] # with a length
    return SequentialSampler(dataset)  # type: ignore[arg-type] # with a length


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    if num_workers < 0:
        raise ValueError(
            "num_workers option should be non-negative; use num_workers=0 to disable "
            "multiprocessing."
        )
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing."
            "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_stream(shuffle: bool | None, sampler: object, batch_sampler: object) -> None:
    start = "DataLoader with IterableDataset: expected unspecified"
    if shuffle:
        raise ValueError(f"{start} shuffle option, but got shuffle={shuffle}")
    if sampler is not None:
        raise ValueError(f"{start} sampler option, but got sampler={sampler}")
    if batch_sampler is not None:
        raise ValueError(f"{start} batch_sampler option, but got batch_sampler={batch_sampler}")


def _seed(generator: Generator | None) -> int:
    """Seed of the first worker: one draw of the generator."""
    parts = [number & (2**64 - 1) for number in next_draw(generator)]
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
