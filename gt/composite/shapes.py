"""Views and rearrangements by the table's few view operators; nothing here computes."""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

import math
import operator
from collections.abc import Sequence

from gt import _core
from gt._core import Tensor, call
from gt.composite.common import (
    Method,
    Shape,
    check_64_bits,
    dims,
    integer,
    listed,
    sizes,
    slice_dim,
    whole,
    wrap,
)
from gt.errors import IndexOutOfRange, ShapeError


def size(self: Tensor, dim: int | None = None) -> Shape | int:
    """The shape, or the size of `dim`."""
    return self.shape if dim is None else self.shape[wrap(dim, self.ndim)]


def element_size(self: Tensor) -> int:
    """Size of an element in bytes."""
    return self.dtype.itemsize


def contiguous(self: Tensor, memory_format: object = None) -> Tensor:
    """`self` if its elements are contiguous in memory, else a contiguous copy."""
    return self if self.is_contiguous() else self.clone()


def is_same_size(self: Tensor, other: Tensor) -> bool:
    """True if the shapes are equal."""
    return self.shape == other.shape


def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions from `start_dim` to `end_dim` as one."""
    start, end = wrap(start_dim, self.ndim), wrap(end_dim, self.ndim)
    if start > end:
        raise ShapeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if start == end and self.ndim:
        return self
    one = math.prod(self.shape[start : end + 1])
    return self.reshape((*self.shape[:start], one, *self.shape[end + 1 :]))


def ravel(self: Tensor) -> Tensor:
    """All elements in one dimension."""
    return self.contiguous().reshape((self.numel(),))


def unflatten(self: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Dimension `dim` split into several; one size may be -1."""
    if not sizes:
        raise ShapeError("unflatten: sizes must be non-empty")
    if self.ndim == 0:
        raise ShapeError(
            "unflatten got an unexpected error:\n"
            "Dimension specified as 0 but tensor has no dimensions"
        )
    place = wrap(dim, self.ndim)
    total, product = self.shape[place], math.prod(n for n in sizes if n != -1)
    inferred = [total // product if n == -1 and product else n for n in sizes]
    if math.prod(inferred) != total:
        raise ShapeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim "
            f"{dim} ({total}) in the input tensor"
        )
    return self.reshape((*self.shape[:place], *inferred, *self.shape[place + 1 :]))


def movedim(self: Tensor, source: int | Shape, destination: int | Shape) -> Tensor:
    """Dimensions `source` moved to the positions `destination`, the others in their order."""
    sources = list(listed(source))
    destinations = list(listed(destination))
    if len(sources) != len(destinations):
        raise ShapeError(
            f"movedim: Invalid source or destination dims: source ({sources} dims) should contain "
            f"the same number of dims as destination ({destinations} dims)"
        )
    taken, placed = dims(source, self.ndim), dims(destination, self.ndim)
    for role, dims_of_role, places in (
        ("source", sources, taken),
        ("destination", destinations, placed),
    ):
        if len(set(places)) != len(places):
            raise ShapeError(f"movedim: repeated dim in `{role}` ({dims_of_role})")
    if self.ndim == 0:  # dim 0 may be named, but nothing is moved
        return self.permute(())
    order = [d for d in range(self.ndim) if d not in taken]
    for place, d in sorted(zip(placed, taken, strict=True)):
        order.insert(place, d)
    return self.permute(tuple(order))


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """A view of the elements in `other`'s shape."""
    return self.view(other.shape)


def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """The elements in `other`'s shape."""
    return self.reshape(other.shape)


def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """`self` expanded to `other`'s shape."""
    return self.expand(other.shape)


def broadcast_to(self: Tensor, size: Shape) -> Tensor:
    """`self` expanded to `size`."""
    return self.expand(size)


def narrow(self: Tensor, dim: int, start: int | Tensor, length: int) -> Tensor:
    """`length` elements from `start` along `dim`."""
    if self.ndim == 0:
        raise ShapeError("narrow() cannot be applied to a 0-dim tensor.")
    if isinstance(start, Tensor):
        if start.ndim or start.dtype.is_floating_point or start.dtype == _core.bool:
            raise ShapeError("start must be an 0-dim integral Tensor.")
        start = int(start.item())
    start, length = integer(start, "start"), integer(length, "length")
    place, whole = wrap(dim, self.ndim), self.shape[wrap(dim, self.ndim)]
    if length < 0:
        raise ShapeError("narrow(): length must be non-negative.")
    if not -whole <= start <= whole:
        raise IndexOutOfRange(
            f"start out of range (expected to be in range of [{-whole}, {whole}], but got {start})"
        )
    first = start + whole if start < 0 else start
    if first + length > whole:
        raise ShapeError(f"start ({first}) + length ({length}) exceeds dimension size ({whole}).")
    return slice_dim(self, place, first, length)


def split(self: Tensor, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Slices of one size (the last may be smaller), or of the given sizes."""
    if self.ndim == 0:
        raise ShapeError("split expects at least a 1-dimensional tensor")
    place, length = wrap(dim, self.ndim), self.shape[wrap(dim, self.ndim)]
    step = whole(split_size)
    if step is None:
        return split_with_sizes(self, listed(split_size), dim)
    check_64_bits(step)
    if step < 0:
        raise ShapeError(f"split expects split_size be non-negative, but got split_size={step}")
    if step == 0 and length:
        raise ShapeError(
            f"split_size can only be 0 if dimension size is 0, but got dimension size of {length}"
        )
    whole_ones, rest = divmod(length, step) if step else (0, 0)
    lengths = [step] * whole_ones + ([rest] if rest or not whole_ones else [])
    return _core.consecutive_slices(self, place, lengths)


def squeeze_function(self: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """`self` without the dimensions `dim` of size one, or without all such; the method takes
    several.
    """
    return self.squeeze() if dim is None else self.squeeze(dim)


def split_function(
    tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Slices of one size (the last may be smaller), or of the given sizes."""
    return tensor.split(split_size_or_sections, dim)


def split_with_sizes(self: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Slices of the given sizes."""
    place, whole = wrap(dim, self.ndim), self.shape[wrap(dim, self.ndim)]
    if any(n < 0 for n in split_sizes):
        raise ShapeError(
            "split_with_sizes expects split_sizes have only non-negative entries, but got "
            f"split_sizes={list(split_sizes)}"
        )
    if sum(split_sizes) != whole:
        raise ShapeError(
            f"split_with_sizes expects split_sizes to sum exactly to {whole} (input tensor's size "
            f"at dimension {dim}), but got split_sizes={list(split_sizes)}"
        )
    return _core.consecutive_slices(self, place, list(split_sizes), with_sizes=True)


def chunk(self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` slices of equal size; the last may be smaller."""
    if self.ndim == 0:
        raise ShapeError("chunk expects at least a 1-dimensional tensor")
    chunks = integer(chunks, "chunks")
    if chunks <= 0:
        raise ShapeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    whole = self.shape[wrap(dim, self.ndim)]
    if whole == 0:
        return split_with_sizes(self, [0] * chunks, dim)
    return split(self, -(-whole // chunks), dim)


def unbind(self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All slices along `dim`, without that dimension."""
    place = wrap(dim, self.ndim)
    if self.ndim == 0:
        raise IndexOutOfRange("Dimension specified as 0 but tensor has no dimensions")
    return _core.entries(self, place, self.shape[place])


def tile(self: Tensor, *counts: int | Sequence[int], dims: Sequence[int] | None = None) -> Tensor:
    """Copies along each dimension; missing counts are 1."""
    counts = sizes(counts if dims is None else (dims,), "tile")
    return self.repeat((1,) * (self.ndim - len(counts)) + counts)


def roll(self: Tensor, shifts: int | Shape, dims: int | Shape | None = None) -> Tensor:
    """Elements rotated along dimensions: those moved beyond the end return at the start."""
    moves, places = listed(shifts), () if dims is None else listed(dims)
    moves = [integer(move, "shifts") for move in moves]
    if not moves:
        raise ShapeError("`shifts` required")
    if not places:
        if len(moves) != 1:
            raise ShapeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:0")
        return roll(ravel(self), moves[0], 0).reshape(self.shape)
    if len(moves) != len(places):
        raise ShapeError(
            f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(places)}"
        )
    if self.ndim == 0:
        raise IndexOutOfRange("Dimension specified as 0 but tensor has no dimensions")
    out = self
    for move, place in zip(moves, places, strict=True):
        d = wrap(place, self.ndim)
        length = self.shape[d]
        cut = length - move % length if length else 0
        if cut != length:
            out = call(
                "cat", slice_dim(out, d, cut, length - cut), slice_dim(out, d, 0, cut), dim=d
            )
    return self.clone() if out is self else out


def repeat_interleave(
    self: Tensor, repeats: int | Tensor, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element (or slice of `dim`) `repeats` times in a row.

    Args:
        repeats: a number, or one for each slice; a tensor is read, since the result's shape depends
            on it.
    """
    if dim is None:
        return repeat_interleave(ravel(self), repeats, 0)
    place = wrap(dim, self.ndim)
    before, length, after = self.shape[:place], self.shape[place], self.shape[place + 1 :]
    if not isinstance(repeats, Tensor):
        each = operator.index(repeats)
        wide = self.reshape((*before, length, 1, *after)).expand((*before, length, each, *after))
        # A copy: if one of the two sizes is 1, reshape would return a view.
        return wide.clone().reshape((*before, length * each, *after))
    counts = [int(count) for count in repeats.reshape((-1,)).numpy()]
    counts = counts * length if len(counts) == 1 else counts
    if len(counts) != length:
        raise ShapeError(
            "repeats must have the same size as input along dim, but got repeats.size(0) = "
            f"{len(counts)} and input.size({dim}) = {length}"
        )
    if min(counts, default=0) < 0:
        raise ShapeError("repeats can not be negative")
    parts = [slice_dim(self, place, i, 1) for i in range(length)]
    copies = [part for part, count in zip(parts, counts, strict=True) for _ in range(count)]
    return call("cat", *copies, dim=place) if copies else slice_dim(self, place, 0, 0)


def swapaxes(self: Tensor, axis0: int, axis1: int) -> Tensor:
    """Two dimensions swapped."""
    return self.transpose(axis0, axis1)


def sum_to_size(
    self: Tensor, *sizes_: int | Sequence[int], size: Sequence[int] | None = None
) -> Tensor:
    """`self` summed over the dimensions in which `size` was broadcast to this shape."""
    shape = sizes(sizes_ if size is None else (size,))
    leading = self.ndim - len(shape)
    fits = leading >= 0 and all(
        n in {1, m} for n, m in zip(shape, self.shape[leading:], strict=False)
    )
    if not fits:
        raise ShapeError(
            f"size {{{list(shape)}}} is not expandable to size {{{list(self.shape)}}}."
        )
    if not shape:
        return self.sum()  # as every sum of bools and small integers
    grown = (leading + d for d, n in enumerate(shape) if n == 1 and self.shape[leading + d] != 1)
    over = (*range(leading), *grown)
    return call("sum", self, dim=over, keepdim=False).reshape(shape) if over else self


def diag(self: Tensor, diagonal: int = 0) -> Tensor:
    """A copy of a matrix's diagonal, or a matrix with this vector as its diagonal."""
    if self.ndim == 2:
        return call("diagonal", self, offset=diagonal, dim1=0, dim2=1).clone()
    if self.ndim != 1:
        raise ShapeError(f"diag(): Supports 1D or 2D tensors. Got {self.ndim}D")
    n = self.shape[0] + abs(diagonal)
    blank = call("full", size=(n, n), value=0, dtype=self.dtype)
    return call("diagonal_scatter", blank, self, offset=diagonal, dim1=0, dim2=1)


def trace(self: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    if self.ndim != 2:
        raise ShapeError(f"trace: expected a matrix, but got tensor with dim {self.ndim}")
    return call("diagonal", self, offset=0, dim1=0, dim2=1).sum()


METHODS: dict[str, Method] = {
    "size": size,
    "ndimension": Tensor.dim,
    "nelement": Tensor.numel,
    "element_size": element_size,
    "contiguous": contiguous,
    "is_same_size": is_same_size,
    "flatten": flatten,
    "ravel": ravel,
    "unflatten": unflatten,
    "swapaxes": swapaxes,
    "swapdims": Tensor.transpose,
    "movedim": movedim,
    "moveaxis": movedim,
    "view_as": view_as,
    "reshape_as": reshape_as,
    "expand_as": expand_as,
    "broadcast_to": broadcast_to,
    "narrow": narrow,
    "split": split,
    "split_with_sizes": split_with_sizes,
    "chunk": chunk,
    "unbind": unbind,
    "tile": tile,
    "roll": roll,
    "repeat_interleave": repeat_interleave,
    "sum_to_size": sum_to_size,
    "diag": diag,
    "trace": trace,
}
