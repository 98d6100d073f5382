"""Datasets: sources of items for a loader, by index or as a stream. No batch is made here."""

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar, cast

from gt._core import Tensor
from gt.compat import misses
from gt.compat.random import randperm
from gt.tensors.draws import Generator

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Items by index: a subclass defines `__getitem__`, and `__len__` for samplers that need it."""

    def __getitem__(self, index: int) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: "Dataset[T_co]") -> "ConcatDataset[T_co]":
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Items as a stream: a subclass defines `__iter__`."""

    def __add__(self, other: Dataset[T_co]) -> "ChainDataset[T_co]":  # type: ignore[override] # as PyTorch has it
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Items are slices of tensors along their first dimension.

    A `DataLoader` with the default collation takes a whole batch of it by one index operation.
    """

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensors[0].size(0) != tensor.size(0) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].size(0))


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other, as one."""

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(map(length, self.datasets)))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        before = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][index - before]


class StackDataset(Dataset[Any]):
    """Items are those of several datasets side by side: a tuple, or a dictionary by name.

    Args:
        args: Datasets of one length, whose items make a tuple.
        kwargs: Such datasets by name, in their place.

    Raises:
        ValueError: None, both, or other lengths.
    """

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or"
                "``dict``- (via ``kwargs``) like input/output, but both types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets: tuple[Dataset[Any], ...] | dict[str, Dataset[Any]] = args or kwargs
        lengths = [length(dataset) for dataset in self._listed()]
        if len(set(lengths)) > 1:
            raise ValueError("Size mismatch between datasets")
        self._length = lengths[0]

    def _listed(self) -> list[Dataset[Any]]:
        datasets = self.datasets
        return list(datasets.values() if isinstance(datasets, dict) else datasets)

    def _joined(self, items: Sequence[Any]) -> Any:  # noqa: ANN401 - as the datasets have them
        datasets = self.datasets
        if isinstance(datasets, dict):
            return dict(zip(datasets, items, strict=True))
        return tuple(items)

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401 - as the datasets have them
        return self._joined([dataset[index] for dataset in self._listed()])

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Several items; each dataset with `__getitems__` gets all its indices in one call."""
        columns = []
        for dataset in self._listed():
            several = getattr(dataset, "__getitems__", None)
            items = several(indices) if callable(several) else [dataset[i] for i in indices]
            if len(items) != len(indices):
                raise ValueError(
                    "Nested dataset's output size mismatch. "
                    f"Expected {len(indices)}, got {len(items)}"
                )
            columns.append(items)
        return [self._joined(items) for items in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self._length


class ChainDataset(IterableDataset[T_co]):
    """Streams one after the other, as one."""

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[T_co]:
        for dataset in self.datasets:
            yield from stream(dataset)

    def __len__(self) -> int:
        return sum(length(stream(dataset)) for dataset in self.datasets)


class Subset(Dataset[T_co]):
    """The items of `dataset` at `indices`."""

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices
        own = type(self)
        if own.__getitem__ is not Subset.__getitem__ and own.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{own.__name__} overrides __getitem__ but not __getitems__. "
                "When subclassing Subset and overriding __getitem__, you must also override "
                "__getitems__ to ensure DataLoader works correctly with your custom logic. "
                "A simple implementation:\n\n"
                "def __getitems__(self, indices):\n"
                "    return [self.__getitem__(idx) for idx in indices]"
            )

    def __getitem__(self, index: int | list[int]) -> T_co:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]  # type: ignore[index] # a dataset that takes lists
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[T_co]:
        return items(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def items(dataset: Dataset[T_co], indices: Sequence[int]) -> Sequence[T_co]:
    """Several items, by the dataset's own `__getitems__` if it has one."""
    several = getattr(dataset, "__getitems__", None)
    if callable(several):
        batch: Sequence[T_co] = several(indices)
        return batch
    return [dataset[index] for index in indices]


def random_split(
    dataset: Dataset[T_co],
    lengths: Sequence[int | float],
    generator: Generator | None = None,
) -> list[Subset[T_co]]:
    """Parts of `dataset` that share no item, of the given lengths or fractions of it.

    Raises:
        ValueError: lengths whose sum is not the dataset's, a fraction outside [0, 1].
    """
    sizes = list(lengths)
    if math.isclose(sum(sizes), 1) and sum(sizes) <= 1:
        sizes = list(_sizes_of_fractions(sizes, length(dataset)))
    if sum(sizes) != length(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = numbers(randperm(length(dataset), generator=generator))
    return [
        Subset(dataset, order[int(end - size) : int(end)])
        for end, size in zip(itertools.accumulate(sizes), sizes, strict=True)
    ]


def _sizes_of_fractions(fractions: Sequence[float], count: int) -> list[int]:
    """Whole parts of `count`; the remainder goes to the first ones, one each."""
    for at, fraction in enumerate(fractions):
        if fraction < 0 or fraction > 1:
            raise ValueError(f"Fraction at index {at} is not between 0 and 1")
    sizes = [math.floor(count * fraction) for fraction in fractions]
    for at in range(count - sum(sizes)):
        sizes[at % len(sizes)] += 1
    for at, size in enumerate(sizes):
        if size == 0:
            warnings.warn(
                f"Length of split at index {at} is 0. This might result in an empty dataset.",
                stacklevel=3,
            )
    return sizes


def length(dataset: object) -> int:
    """Length of a dataset that has one; else Python's TypeError."""
    sized: Sized = dataset  # type: ignore[assignment] # that is the question
    return len(sized)


def stream(dataset: Dataset[T_co]) -> IterableDataset[T_co]:
    """`dataset`, which must be a stream."""
    if not isinstance(dataset, IterableDataset):
        raise AssertionError("ChainDataset only supports IterableDataset")  # noqa: TRY004 - PyTorch's
    return dataset


def numbers(x: Tensor) -> list[int]:
    """The whole numbers of a vector."""
    return cast("list[int]", x.tolist())


__getattr__ = misses.hook(__name__)
