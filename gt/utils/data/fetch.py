"""How a loader makes one batch of a dataset."""

from collections.abc import Iterator, Sequence

from gt._core import Tensor
from gt.utils.data.collate import Collate, default_collate
from gt.utils.data.dataset import Dataset, IterableDataset, Subset, TensorDataset, items


class Fetcher:
    """Batches of one dataset: by indices, or of a stream, of which only their number counts."""

    def __init__(
        self, dataset: Dataset[object], collate: Collate, *, batches: bool, drop_last: bool
    ) -> None:
        self._dataset = dataset
        self._collate = collate
        self._batches = batches
        self._drop_last = drop_last
        self._stream: Iterator[object] | None = None
        if isinstance(dataset, IterableDataset):
            self._stream = iter(dataset)

    def fetch(self, index: object) -> object:
        """The batch of a list of indices, or the item of one where items are not batched.

        Raises:
            StopIteration: the stream has ended.
        """
        if self._stream is not None:
            return self._next(self._stream, index)
        if not self._batches:
            return self._collate(self._dataset[index])  # type: ignore[arg-type,index] # one item
        assert isinstance(index, Sequence), index
        if self._collate is default_collate and (whole := _whole_batch(self._dataset, index)):
            return whole
        return self._collate(items(self._dataset, index))

    def _next(self, stream: Iterator[object], index: object) -> object:
        if not self._batches:
            return self._collate(next(stream))  # type: ignore[arg-type] # one item
        assert isinstance(index, Sequence), index
        batch = [item for _, item in zip(index, stream, strict=False)]
        if not batch or (self._drop_last and len(batch) < len(index)):
            raise StopIteration
        return self._collate(batch)


def _whole_batch(dataset: object, indices: Sequence[int]) -> list[Tensor] | None:
    """What stacking the items of a TensorDataset gives, by one index operation a tensor.

    None where that is not the same: a dataset of another class, and indices that are not plain ones
    of its length, whose items raise the errors.
    """
    if any(type(index) is not int for index in indices):
        return None
    if isinstance(dataset, Subset) and type(dataset) is Subset:
        size = len(dataset)
        if not all(-size <= index < size for index in indices):
            return None
        return _whole_batch(dataset.dataset, [dataset.indices[index] for index in indices])
    if not isinstance(dataset, TensorDataset) or type(dataset) is not TensorDataset or not indices:
        return None
    size = len(dataset)
    if any(type(index) is not int or not -size <= index < size for index in indices):
        return None
    first = indices[0]
    if first >= 0 and list(indices) == list(range(first, first + len(indices))):
        return [x[first : first + len(indices)].clone() for x in dataset.tensors]
    return [x[list(indices)] for x in dataset.tensors]
