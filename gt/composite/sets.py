"""Distinct elements of a tensor, multi-dimensional indices of flat ones, and histograms.

A worker is asked for data-dependent shapes at each call (gt/tensors/aten/call.py).
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from gt import _core
from gt._core import Tensor
from gt.composite.common import Method, Number, whole
from gt.errors import InvalidType, InvalidValue, NotSupported
from gt.tensors.kept import keeps

Different: TypeAlias = Tensor | tuple[Tensor, ...]


class Histogram(NamedTuple):
    """Counts, and the cells' edges along each dimension."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Different:
    """The distinct elements (or slices of `dim`) in order.

    Args:
        sorted: accepted without effect: the result is always sorted, as PyTorch's is on a CPU.
        return_inverse: True also returns each element's index among them.
        return_counts: True also returns their counts in the input.
        dim: dimension of slices; elements if not given.
    """
    from gt.tensors.aten.call import call

    options = {"sorted": sorted, "return_inverse": return_inverse, "return_counts": return_counts}
    arguments: tuple[object, ...] = (input,) if dim is None else (input, dim)
    parts = call("_unique2" if dim is None else "unique_dim", arguments, options)
    return wanted(parts, return_inverse=return_inverse, return_counts=return_counts)


def unique_consecutive(
    input: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Different:
    """The input without elements (or slices of `dim`) that equal the one before.

    Args:
        return_inverse: True also returns each element's index in the result.
        return_counts: True also returns the number of elements for which each one stands.
        dim: dimension of slices; elements if not given.
    """
    from gt.tensors.aten.call import call

    options = {"return_inverse": return_inverse, "return_counts": return_counts, "dim": dim}
    parts = call("unique_consecutive", (input,), options)
    return wanted(parts, return_inverse=return_inverse, return_counts=return_counts)


def wanted(parts: Sequence[Tensor], *, return_inverse: bool, return_counts: bool) -> Different:
    """The first of the results, and of the two others those that are asked for."""
    chosen = (True, return_inverse, return_counts)
    results = tuple(itertools.compress(parts, chosen))
    return results[0] if len(results) == 1 else results


def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Indices along each dimension of `shape`, from flat indices.

    Raises:
        TypeError: indices or sizes are no integers.
        ValueError: there are negative sizes, or a size of 0 with any index.
    """
    if indices.is_floating_point() or indices.dtype == _core.bool:
        raise InvalidType(
            f"expected 'indices' to be integer dtype, but got torch.{indices.dtype.name}"
        )
    if whole(shape) is None and not isinstance(shape, list | tuple):
        raise InvalidType(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    for size in sizes:
        if whole(size) is None:
            raise InvalidType(
                f"expected 'shape' sequence to only contain ints, but got {type(size)}"
            )
    if any(size < 0 for size in sizes):
        raise InvalidValue(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    if indices.numel() and not all(sizes):
        raise InvalidValue(
            "'shape' cannot have zero dimensions when 'indices' is non-empty, but got "
            f"{tuple(sizes)}"
        )
    steps = [math.prod(sizes[place + 1 :]) for place in range(len(sizes))]
    flat = indices.to(_core.int64)
    pairs = zip(steps, sizes, strict=True)
    return tuple(flat.floor_divide(step) % size if size else flat for step, size in pairs)


def histogramdd(
    input: Tensor,
    bins: int | Sequence[int] | Sequence[Tensor],
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """Number of rows of [..., d] in each cell of a grid.

    Args:
        bins: their number along each dimension, or their edges.
        range: the lowest and the highest edge along each dimension; the data's if not given.
        weight: [...], the weight of each row.
        density: True divides by the sum and by each cell's volume.
    """
    from gt.tensors.aten.call import call

    options: dict[str, object] = {"weight": weight, "density": density}
    listed = [bins] * input.shape[-1] if isinstance(bins, int) else list(bins)
    if listed and isinstance(listed[0], Tensor):
        counts = call("_histogramdd_from_bin_tensors", (input, listed), options)
        return Histogram(counts, tuple(edge for edge in listed if isinstance(edge, Tensor)))
    options = {"range": range, **options}
    counts = call("_histogramdd_from_bin_cts", (input, listed), options)
    return Histogram(counts, call("_histogramdd_bin_edges", (input, listed), options))


@keeps(data="data lengths offsets out")
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Number | None = None,
) -> Tensor:
    """The sum, mean, max, min or product of each run of elements along `axis`.

    Args:
        lengths: length of each run: the data's dimensions before `axis`, then the runs.
        offsets: instead of `lengths`, the start of each run, and the end of the last one.
        unsafe: True allows lengths that end before the data does. Lengths beyond the data raise an
            error when the result is read.
        initial: result of an empty run, which is also combined with each other run.

    Raises:
        NotSupported: `indices` are given, or neither lengths nor offsets, as in PyTorch.
    """
    from gt.tensors.aten.call import call

    if indices is not None:
        raise NotSupported("segment_reduce(): indices based reduction is not supported yet.")
    if offsets is not None:  # elements before the first offset are an extra run, dropped below
        first = _core.call("slice", offsets, dim=axis, start=0, end=1, step=1)
        lengths = offsets.diff(dim=axis, prepend=first * 0)
    if lengths is None:
        raise NotSupported("segment_reduce(): Either lengths or offsets must be defined.")
    is_whole = offsets is None and not unsafe
    reduced: Tensor = call(
        "segment_reduce_lengths", (data, reduce, lengths, axis, is_whole, initial), {}
    )
    if offsets is None:
        return reduced
    return reduced.narrow(axis, 1, lengths.shape[axis] - 1).clone()  # a new value, no view


# Functions whose error for a wrong first argument differs from that of other methods.
METHODS: dict[str, Method] = {"unique": unique, "unique_consecutive": unique_consecutive}
FUNCTIONS: dict[str, Method] = {
    "histogramdd": histogramdd,
    "segment_reduce": segment_reduce,
    "unique": unique,
    "unique_consecutive": unique_consecutive,
    "unravel_index": unravel_index,
}
