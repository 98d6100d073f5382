"""Samplers: the order in which a loader takes items, drawn from GT's generators."""

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Generic, TypeVar

from gt import _core
from gt._core import Tensor
from gt.compat import misses
from gt.compat.random import randint, randperm
from gt.tensors.creation import as_tensor
from gt.tensors.draws import Generator
from gt.utils.data.dataset import length, numbers

T_co = TypeVar("T_co", covariant=True)


# Number of draws at a time for a sampler with replacement: a few milliseconds, 512 KiB.
DRAWS_MAX = 2**16


class Sampler(Generic[T_co]):
    """An order of indices, or of lists of them: a subclass writes `__iter__`."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


class SequentialSampler(Sampler[int]):
    """Every index, in order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices at random: each once a round, or `num_samples` with replacement.

    The draws are GT's own: the same seed gives other orders than in PyTorch.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _check_bool("replacement", replacement, TypeError)
        count = self.num_samples
        if not _is_count(count):
            raise ValueError(
                f"num_samples should be a positive integer value, but got num_samples={count}"
            )

    @property
    def num_samples(self) -> int:
        """Number of indices in a round; the dataset may change its length between two rounds."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        count, left = len(self.data_source), self.num_samples
        if self.replacement:
            # Programs may request far more than they use: `num_samples=int(1e10)`.
            for begin in range(0, left, DRAWS_MAX):
                size = (min(DRAWS_MAX, left - begin),)
                yield from numbers(randint(0, count, size, generator=self.generator))
            return
        while left > 0:
            yield from numbers(randperm(count, generator=self.generator))[:left]
            left -= count

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices, each once, at random."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for at in numbers(randperm(len(self.indices), generator=self.generator)):
            yield self.indices[at]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices of `weights`, drawn in proportion to them."""

    def __init__(
        self,
        weights: Sequence[float] | Tensor,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        _check_count("num_samples", num_samples)
        _check_bool("replacement", replacement, ValueError)
        self.weights = as_tensor(weights, dtype=_core.float64)
        if self.weights.ndim != 1:
            raise ValueError(
                "weights should be a 1d sequence but given "
                f"weights have shape {tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = self.weights.multinomial(
            self.num_samples, self.replacement, generator=self.generator
        )
        yield from numbers(drawn)

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler; the last may be shorter."""

    def __init__(
        self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool
    ) -> None:
        _check_count("batch_size", batch_size)
        _check_bool("drop_last", drop_last, ValueError)
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if self.drop_last and len(batch) < self.batch_size:
                return
            yield batch

    def __len__(self) -> int:
        short = 0 if self.drop_last else self.batch_size - 1
        return (length(self.sampler) + short) // self.batch_size


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value > 0


def _check_count(name: str, value: object) -> None:
    if not _is_count(value) or isinstance(value, bool):
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


def _check_bool(name: str, value: object, error: type[Exception]) -> None:
    if not isinstance(value, bool):
        raise error(f"{name} should be a boolean value, but got {name}={value}")


__getattr__ = misses.hook(__name__)
