"""Production of one batch of a dataset, in the loader's own process or in a worker's."""

from collections.abc import Iterator, Mapping, Sequence

from gt._core import Tensor
from gt.utils.data.collate import Collate, default_collate, planning
from gt.utils.data.dataset import Dataset, IterableDataset, Subset, TensorDataset, items
from gt.utils.data.held import Held, made
from gt.utils.data.planned import Planned


class Fetcher:
    """Batches of one dataset: by indices, or of a stream, for which only their number matters.

    Args:
        held: in a worker, what it has of tensors by their ids; a session is not opened for these.
    """

    def __init__(
        self,
        dataset: Dataset[object],
        collate: Collate,
        *,
        batches: bool,
        drop_last: bool,
        held: Mapping[int, Held] | None = None,
    ) -> None:
        self._dataset = dataset
        self._held = held or {}
        self._is_default = collate is default_collate
        self._collate = collate if held is None else planning(collate)
        self._batches = batches
        self._drop_last = drop_last
        self._stream: Iterator[object] | None = None
        if isinstance(dataset, IterableDataset):
            self._stream = iter(dataset)

    @property
    def is_stream(self) -> bool:
        return self._stream is not None

    def fetch(self, index: object) -> object:
        """The batch for a list of indices, or the single item if items are not batched.

        Raises:
            StopIteration: the stream has ended.
        """
        if self._stream is not None:
            return self._next(self._stream, index)
        if not self._batches:
            return self._collate(self._dataset[index])  # type: ignore[arg-type,index] # one item
        assert isinstance(index, Sequence), index
        if self._is_default and (batch := _whole_batch(self._dataset, index)):
            tensors, rows = batch
            return [_taken(tensor, rows, self._held.get(id(tensor))) for tensor in tensors]
        return self._collate(items(self._dataset, index))

    def _next(self, stream: Iterator[object], index: object) -> object:
        if not self._batches:
            return self._collate(next(stream))  # type: ignore[arg-type] # one item
        assert isinstance(index, Sequence), index
        batch = [item for _, item in zip(index, stream, strict=False)]
        if not batch or (self._drop_last and len(batch) < len(index)):
            raise StopIteration
        return self._collate(batch)


def _whole_batch(
    dataset: object, indices: Sequence[int]
) -> tuple[tuple[Tensor, ...], slice | list[int]] | None:
    """Tensors of a TensorDataset, and the rows that equal stacking its items.

    None where the results could differ: for a dataset of another class, or unusual indices, whose
    items raise the errors.
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
        return dataset.tensors, slice(first, first + len(indices))
    return dataset.tensors, list(indices)


def _taken(tensor: Tensor, rows: slice | list[int], held: Held | None) -> Tensor | Planned:
    """Rows of a tensor by one index operation, on the worker's array or on the tensor itself."""
    if held is not None and not tensor.requires_grad:
        return Planned(made, (held.array[rows], held.dtype))
    return tensor[rows].clone() if isinstance(rows, slice) else tensor[rows]
