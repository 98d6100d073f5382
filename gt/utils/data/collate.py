"""Batches of items: tensors are stacked, numbers become tensors, containers keep their kind."""

import copy
import functools
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence

import numpy as np

from gt import _core
from gt._core import Tensor
from gt.composite.joining import stack
from gt.tensors.conversion import Array, Recorded, exported
from gt.tensors.creation import as_tensor
from gt.utils.data.planned import Planned

TEXT_KINDS = "SaUO"  # kinds of numpy dtypes that make no tensor
Collate = Callable[[Sequence[object]], object]
Make = Callable[..., object]  # makes a tensor from data and a dtype


def default_collate(batch: Sequence[object]) -> object:
    """Items as one batch, with a dimension in front.

    Tensors are stacked, numbers and arrays become a tensor (Python's floats float64), text stays a
    list; mappings and sequences are collated entry by entry, and a tuple becomes a list. PyTorch's
    tensors become GT's.

    Raises:
        TypeError: an item of another type.
        RuntimeError: sequences or tensors of unequal sizes.
    """
    return _collated(batch, as_tensor)


def _collated(batch: Sequence[object], make: Make) -> object:
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch, 0)  # type: ignore[arg-type] # as the first
    if isinstance(first, (np.ndarray, Recorded)):
        return _arrays(batch, make)
    if isinstance(first, (np.bool_, np.number)):
        return make(np.asarray(batch))
    if isinstance(first, float):
        return make(batch, dtype=_core.float64)
    if isinstance(first, int):
        return make(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return _mapping(first, lambda key: _collated([item[key] for item in batch], make))  # type: ignore[index] # as the first
    if isinstance(first, Sequence):
        return _sequences(first, batch, make)
    raise _misfit(type(first))


def default_convert(data: object) -> object:
    """`data` with arrays as tensors; other values stay."""
    return _converted(data, as_tensor)


def planning(collate: Collate) -> Collate:
    """Collate function for a worker: default functions, with tensors made in the loader's process.

    Arguments of `default_collate` and functions of the user are computed in the worker.
    """
    if collate is default_collate:
        return functools.partial(_collated, make=_planned)
    return functools.partial(_converted, make=_planned) if collate is default_convert else collate


def _planned(data: object, dtype: _core.dtype | None = None) -> Planned:
    if isinstance(data, Recorded) and (foreign := exported(data)) is not None:
        data, dtype = foreign
    return Planned(as_tensor, (data, dtype))


def _converted(data: object, make: Make) -> object:
    if isinstance(data, (np.ndarray, np.number, np.bool_)):
        if isinstance(data, np.ndarray) and any(kind in data.dtype.str for kind in TEXT_KINDS):
            return data
        return make(data)
    if isinstance(data, Recorded) and not isinstance(data, Tensor):
        return make(data)
    if isinstance(data, Mapping):
        return _mapping(data, lambda key: _converted(data[key], make))
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _sequence(data, [_converted(item, make) for item in data])
    return data


def _arrays(batch: Sequence[object], make: Make) -> object:
    """One upload if all arrays are alike; else PyTorch's promotion, and its error for
    other shapes.
    """
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
        return make(np.stack(arrays), dtype=dtype)
    return stack([as_tensor(item) for item in batch], 0)  # type: ignore[arg-type] # as read above


def _sequences(first: Sequence[object], batch: Sequence[object], make: Make) -> object:
    rows: list[Sequence[object]] = list(batch)  # type: ignore[arg-type] # as the first
    named = isinstance(first, tuple) and hasattr(first, "_fields")
    if not named and any(len(row) != len(first) for row in rows):
        raise RuntimeError("each element in list of batch should be of equal size")
    return _sequence(first, [_collated(row, make) for row in zip(*rows, strict=False)])


def _mapping(like: Mapping[object, object], entry: Callable[[object], object]) -> object:
    """The entries in a mapping of the class of `like`, or a dict if that cannot be made."""
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
    """The entries in a sequence of the class of `like`; a list for a tuple, as in PyTorch."""
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
