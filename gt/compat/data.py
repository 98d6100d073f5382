"""`gt.data`: batches that are made and uploaded ahead of the program's requests."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from gt.errors import InvalidType, InvalidValue
from gt.utils.data.collate import default_convert

__all__ = ["Prefetcher", "prefetch"]

Batch = TypeVar("Batch")
END = object()  # the loader has no more batches


class Prefetcher(Generic[Batch]):
    """The iterable that `prefetch` returns; each iteration is one pass over the loader."""

    def __init__(self, loader: Iterable[Batch], n: int) -> None:
        self.loader = loader
        self.n = n

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type] # a loader without a length raises

    def __iter__(self) -> Iterator[Batch]:
        batches = iter(self.loader)
        thread = ThreadPoolExecutor(1, thread_name_prefix="gt-prefetch")
        pending: deque[Future[object]] = deque()
        try:
            first = _next(batches)  # in this thread: a sampler draws its order at a fixed place
            pending.extend(thread.submit(_next, batches) for _ in range(self.n))
            while first is not END:
                yield first  # type: ignore[misc] # no END
                first = pending.popleft().result()
                pending.append(thread.submit(_next, batches))
        finally:
            thread.shutdown(wait=False, cancel_futures=True)


def prefetch(loader: Iterable[Batch], n: int = 2) -> Prefetcher[Batch]:
    """The batches of `loader`, the next `n` of which a thread makes and uploads ahead.

    numpy arrays and PyTorch's tensors in a batch become GT's tensors, so that a PyTorch loader, or
    any iterable, can be given; containers keep their type, and other values do not change. The
    batches and their order are those of the loader.

    Draws from the default generator in the making of a batch (a random crop in the dataset) fall
    between the program's own draws at no fixed place: give the dataset its own generator. An
    exception of the loader is raised when its batch is requested.

    Args:
        loader: a `DataLoader` or another iterable; it is iterated again for each epoch.
        n: number of batches ahead of the program, at least 1.

    Returns:
        An iterable with the loader's length.

    Raises:
        TypeError: `loader` cannot be iterated, or `n` is no integer.
        ValueError: `n` is less than 1.

    Example:
        >>> for x, y in gt.data.prefetch(loader):  # doctest: +SKIP
        ...     loss = loss_fn(model(x), y)
    """
    if not hasattr(loader, "__iter__"):
        raise InvalidType(f"prefetch(): loader is a {type(loader).__name__}: give an iterable")
    if type(n) is not int:
        raise InvalidType(f"prefetch(): n is a {type(n).__name__}, not an int")
    if n < 1:
        raise InvalidValue(f"prefetch(): n is {n}: give at least 1")
    return Prefetcher(loader, n)


def _next(batches: Iterator[Batch]) -> object:
    try:
        return default_convert(next(batches))
    except StopIteration:
        return END


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
