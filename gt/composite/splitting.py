"""Splits at indices, and hsplit, vsplit and dsplit; nothing is computed.

Each part is a separate slice, as in PyTorch: a recorded write into one is allowed, unlike into the
results of `split` and `chunk`.
"""

from collections.abc import Sequence
from typing import TypeAlias

from gt import _core
from gt._core import Tensor
from gt.composite.casts import class_of
from gt.composite.common import Method, check_64_bits, slice_dim, whole, wrap
from gt.composite.shapes import chunk, split, split_with_sizes
from gt.errors import InvalidType, ShapeError

# Number of parts, or the start of each part but the first.
Cuts: TypeAlias = int | Sequence[int] | None
Places: TypeAlias = int | Sequence[int] | Tensor


def tensor_split(
    self: Tensor,
    indices_or_sections: Places | None = None,
    dim: int = 0,
    *,
    indices: Places | None = None,
    sections: int | None = None,
    tensor_indices_or_sections: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Slices along `dim`: a number of nearly equal size, or between indices.

    Args:
        indices_or_sections: number of slices, or the indices; a tensor of integers is read.
        dim: the dimension.
        indices: alternative name for indices.
        sections: alternative name for a number.
        tensor_indices_or_sections: alternative name for a tensor.
    """
    named = (indices_or_sections, indices, sections, tensor_indices_or_sections)
    places = next((value for value in named if value is not None), None)
    if self.ndim == 0:
        raise ShapeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    if isinstance(places, Tensor):
        places = read_places(places)
    return tuple(split_at(self, places, wrap(dim, self.ndim), "tensor_split"))


def read_places(places: Tensor) -> int | list[int]:
    """The number, or the numbers, in an int64 tensor."""
    if places.dtype != _core.int64:
        raise ShapeError(
            "tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
            f"{class_of(places.dtype)}"
        )
    if places.ndim > 1:
        raise ShapeError(
            "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
            f"one-dimensional tensor, but got a tensor with {places.ndim} dims"
        )
    values = [int(value) for value in places.reshape((-1,)).numpy()]
    return values if places.ndim else values[0]


def split_at(
    self: Tensor, places: int | Sequence[int] | None, dim: int, function: str
) -> list[Tensor]:
    """The slices of a number of sections, or between indices."""
    length, sections = self.shape[dim], whole(places)
    if sections is not None:
        check_64_bits(sections)
        if sections <= 0:
            raise ShapeError(f"number of sections must be larger than 0, got {sections}")
        least, more = divmod(length, sections)
        sizes = [least + (place < more) for place in range(sections)]
        starts = [sum(sizes[:place]) for place in range(sections)]
        return [slice_dim(self, dim, at, n) for at, n in zip(starts, sizes, strict=True)]
    if not isinstance(places, list | tuple):
        kind = type(places).__name__
        raise InvalidType(
            f"{function}() received an invalid combination of arguments - got (Tensor, {kind}), "
            "but expected one of:\n * (Tensor input, tuple of ints indices)\n"
            " * (Tensor input, int sections)"
        )
    limits = [
        slice(a, b).indices(length) for a, b in zip([0, *places], [*places, None], strict=True)
    ]
    return [slice_dim(self, dim, start, max(0, end - start)) for start, end, _ in limits]


def one_of(*names: Cuts) -> Cuts:
    """The argument that is given under one of its names."""
    return next((value for value in names if value is not None), None)


def in_equal_parts(
    self: Tensor, places: Cuts, dim: int, least: int, name: str
) -> tuple[Tensor, ...]:
    """Slices along `dim` of a tensor of at least `least` dimensions, for the function `name`."""
    if self.ndim < least:
        raise ShapeError(
            f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor "
            f"with {self.ndim} dimensions!"
        )
    sections = whole(places)
    if sections is not None and (not sections or self.shape[dim] % sections):
        raise ShapeError(
            f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension "
            f"{self.shape[dim]} is not divisible by the split_size {sections}!"
        )
    return tuple(split_at(self, places, dim, name))


def hsplit(
    self: Tensor,
    indices_or_sections: Cuts = None,
    *,
    indices: Cuts = None,
    sections: Cuts = None,
) -> tuple[Tensor, ...]:
    """Slices along columns (of a vector along its only dimension): of equal size, or at indices."""
    places = one_of(indices_or_sections, indices, sections)
    return in_equal_parts(self, places, 0 if self.ndim == 1 else 1, 1, "hsplit")


def vsplit(
    self: Tensor,
    indices_or_sections: Cuts = None,
    *,
    indices: Cuts = None,
    sections: Cuts = None,
) -> tuple[Tensor, ...]:
    """Slices along rows: of equal size, or at indices."""
    places = one_of(indices_or_sections, indices, sections)
    return in_equal_parts(self, places, 0, 2, "vsplit")


def dsplit(
    self: Tensor,
    indices_or_sections: Cuts = None,
    *,
    indices: Cuts = None,
    sections: Cuts = None,
) -> tuple[Tensor, ...]:
    """Slices along the third dimension: of equal size, or at indices."""
    places = one_of(indices_or_sections, indices, sections)
    return in_equal_parts(self, places, 2, 3, "dsplit")


def unsafe_chunk(self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices of chunk, without autograd's knowledge that they share memory."""
    return tuple(_core.unwatched(part) for part in chunk(self, chunks, dim))


def unsafe_split(self: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices of split, without autograd's knowledge that they share memory."""
    return tuple(_core.unwatched(part) for part in split(self, split_size, dim))


def unsafe_split_with_sizes(
    self: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """The slices of split_with_sizes, without autograd's knowledge that they share memory."""
    return tuple(_core.unwatched(part) for part in split_with_sizes(self, split_sizes, dim))


METHODS: dict[str, Method] = {
    "tensor_split": tensor_split,
    "hsplit": hsplit,
    "vsplit": vsplit,
    "dsplit": dsplit,
    "unsafe_chunk": unsafe_chunk,
    "unsafe_split": unsafe_split,
    "unsafe_split_with_sizes": unsafe_split_with_sizes,
}
