"""Batches of items: tensors are stacked, numbers become tensors, containers keep their kind."""

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence

import numpy as np

from gt import _core
from gt._core import Tensor
from gt.composite.joining import stack
from gt.conversion import Array, Recorded, exported
from gt.creation import as_tensor, tensor

TEXT_KINDS = "SaUO"  # of numpy's dtypes: no tensor is made of them
Collate = Callable[[Sequence[object]], object]


def default_collate(batch: Sequence[object]) -> object:
    """Items as one batch, with a dimension in front.

    Tensors are stacked, numbers and arrays become a tensor (Python's floats float64), text stays a
    list; mappings and sequences are collated entry by entry, and a tuple becomes a list. PyTorch's
    tensors become GT's.

    Raises:
        TypeError: an item of another type.
        RuntimeError: sequences or tensors of unequal sizes.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch, 0)  # type: ignore[arg-type] # as the first
    if isinstance(first, (np.ndarray, Recorded)):
        return _arrays(batch)
    if isinstance(first, (np.bool_, np.number)):
        return as_tensor(np.asarray(batch))
    if isinstance(first, float):
        return tensor(batch, dtype=_core.float64)  # type: ignore[arg-type] # as the first
    if isinstance(first, int):
        return tensor(batch)  # type: ignore[arg-type] # as the first
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return _mapping(first, lambda key: default_collate([item[key] for item in batch]))  # type: ignore[index] # as the first
    if isinstance(first, Sequence):
        return _sequences(first, batch)
    raise _misfit(type(first))


def default_convert(data: object) -> object:
    """Arrays in `data` as tensors; the rest stays."""
    if isinstance(data, (np.ndarray, np.number, np.bool_)):
        if isinstance(data, np.ndarray) and any(kind in data.dtype.str for kind in TEXT_KINDS):
            return data
        return as_tensor(data)
    if isinstance(data, Recorded) and not isinstance(data, Tensor):
        return as_tensor(data)  # type: ignore[arg-type] # PyTorch's
    if isinstance(data, Mapping):
        return _mapping(data, lambda key: default_convert(data[key]))
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _sequence(data, [default_convert(item) for item in data])
    return data


def _arrays(batch: Sequence[object]) -> Tensor:
    """One upload where all are alike; else PyTorch's promotion, and its error for other shapes."""
    arrays: list[Array] = []
    dtype = None
    for item in batch:
        foreign = None if isinstance(item, np.ndarray) else exported(item)
        array, dtype = (np.asarray(item), None) if foreign is None else foreign
        if any(kind in array.dtype.str for kind in TEXT_KINDS):
            raise _misfit(array.dtype)
        arrays.append(array)
    kinds = {(array.shape, array.dtype) for array in arrays}
    if len(kinds) == 1:
        return as_tensor(np.stack(arrays), dtype=dtype)
    return stack([as_tensor(item) for item in batch], 0)  # type: ignore[arg-type] # as read above


def _sequences(first: Sequence[object], batch: Sequence[object]) -> object:
    rows: list[Sequence[object]] = list(batch)  # type: ignore[arg-type] # as the first
    named = isinstance(first, tuple) and hasattr(first, "_fields")
    if not named and any(len(row) != len(first) for row in rows):
        raise RuntimeError("each element in list of batch should be of equal size")
    return _sequence(first, [default_collate(row) for row in zip(*rows, strict=False)])


def _mapping(like: Mapping[object, object], entry: Callable[[object], object]) -> object:
    """The entries in a mapping of the kind of `like`, or a dict where it cannot be made."""
    entries = {key: entry(key) for key in like}
    try:
        if isinstance(like, MutableMapping):
            changed = copy.copy(like)
            changed.update(entries)
            return changed
        return type(like)(entries)  # type: ignore[call-arg] # most take a mapping
    except TypeError:
        return entries


def _sequence(like: Sequence[object], entries: list[object]) -> object:
    """The entries in a sequence of the kind of `like`; a list for a tuple, as PyTorch has it."""
    if isinstance(like, tuple):
        make: Callable[..., object] = type(like)
        return make(*entries) if hasattr(like, "_fields") else entries
    try:
        if isinstance(like, MutableSequence):
            changed = copy.copy(like)
            for at, entry in enumerate(entries):
                changed[at] = entry
            return changed
        return type(like)(entries)  # type: ignore[call-arg] # most take a list
    except TypeError:
        return entries


def _misfit(kind: object) -> TypeError:
    return TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {kind}"
    )
