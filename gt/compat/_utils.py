"""`gt._utils`: private functions of PyTorch that programs call nevertheless."""

import importlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gt._core import Tensor, dtype
from gt.compat import misses
from gt.composite.joining import cat
from gt.errors import InvalidValue
from gt.tensors import devices

__all__ = [
    "_element_size",
    "_flatten_dense_tensors",
    "_get_all_device_indices",
    "_get_device_index",
    "_import_dotted_name",
    "_reorder_tensors_as",
    "_take_tensors",
    "_unflatten_dense_tensors",
]


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of tensors of one dtype in one dimension; a view if `tensors` is one contiguous
    tensor.

    Args:
        tensors: [...] each.
    """
    rows = [tensor.contiguous().view(-1) for tensor in tensors]
    return rows[0] if len(rows) == 1 else cat(rows)


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Consecutive parts of `flat` as views with the tensors' shapes.

    Args:
        flat: [elements], the result of `_flatten_dense_tensors(tensors)`.
        tensors: the tensors whose shapes are used.
    """
    parts, offset = [], 0
    for tensor in tensors:
        parts.append(flat.narrow(0, offset, tensor.numel()).view(tensor.shape))
        offset += tensor.numel()
    return tuple(parts)


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Lists of tensors of one dtype each, in order; a list exceeds the limit only if it has one
    tensor.

    Args:
        tensors: tensors of any dtypes.
        size_limit: limit in bytes.
    """
    lists: dict[dtype, list[Tensor]] = defaultdict(list)
    sizes: dict[dtype, int] = defaultdict(int)
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if sizes[tensor.dtype] and sizes[tensor.dtype] + size > size_limit:
            yield lists[tensor.dtype]
            lists[tensor.dtype], sizes[tensor.dtype] = [], 0
        lists[tensor.dtype].append(tensor)
        sizes[tensor.dtype] += size
    yield from [taken for taken in lists.values() if taken]


def _reorder_tensors_as(
    tensors: Iterable[Tensor], ordered_tensors: Iterable[Tensor]
) -> tuple[Tensor, ...]:
    """`tensors` reordered so that the sequence of their dtypes is that of `ordered_tensors`.

    Args:
        tensors: the lists of `_take_tensors`, joined.
        ordered_tensors: the tensors whose dtypes are used.
    """
    rows: dict[dtype, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        rows[tensor.dtype].append(tensor)
    nexts = {kind: iter(row) for kind, row in rows.items()}
    return tuple(next(nexts[tensor.dtype]) for tensor in ordered_tensors)


def _element_size(dtype: dtype) -> int:
    """Size of an element in bytes."""
    return dtype.itemsize


def _get_device_index(
    device: object, optional: bool = False, allow_cpu: bool = False
) -> int | None:
    """The number of a device, given as a number, a text or a device; -1 for a CPU.

    Args:
        device: a device; without a number it is the current one: 0 if there is a GPU, else None.
        optional: whether the number may be missing.
        allow_cpu: whether a CPU is allowed.

    Raises:
        InvalidValue: it is no device, one without a number, or a CPU.
    """
    if isinstance(device, int):
        return device
    named = devices.device(device) if isinstance(device, str) else device
    number = None
    if isinstance(named, devices.device):
        if named.type == "cpu":
            if allow_cpu:
                return -1
            raise InvalidValue(f"Expected a non cpu device, but got: {device}")
        number = named.index
    if number is None and not optional:
        raise InvalidValue(
            f"Expected a torch.device with a specified index or an integer, but got:{device}"
        )
    if number is None:
        from gt import cuda

        return cuda.current_device() if cuda.is_available() else None
    return number


def _get_all_device_indices() -> list[int]:
    """The numbers of this machine's GPUs."""
    from gt import cuda

    return list(range(cuda.device_count()))


def _import_dotted_name(name: str) -> Any:  # noqa: ANN401 - what it names
    """The object that a dotted `package.module.name` names; its package is imported."""
    first, *others = name.split(".")
    value = importlib.import_module(first)
    for other in others:
        value = getattr(value, other)
    return value


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
