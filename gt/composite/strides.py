"""Functions that PyTorch defines by strides: memory read in another order, and empty tensors.

Results of operators are contiguous, whatever strides are asked for.
"""

# ruff: noqa: ARG001 - arguments that PyTorch takes and that mean nothing here

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gt import _core
from gt._core import Tensor, call
from gt.composite.common import Method, Number, sizes
from gt.errors import InvalidUse, NotSupported, ShapeError
from gt.tensors.dtypes import check_layout, sparse_coo

Places = NDArray[np.int64]

WRITTEN = (
    "as_strided of a detached part that requires a gradient is a copy in GT: writing it "
    "would not write the tensor. Write the tensor itself, or take as_strided under no_grad"
)


def as_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A view of elements of this memory, at `storage_offset` and so many from each other.

    Of a detached part that requires a gradient it is a copy, which cannot be written.

    Args:
        size: the result's shape.
        stride: elements from one to the next along each dimension.
        storage_offset: where it begins; where `self` does if not given.

    Raises:
        ShapeError: elements outside of the memory.
        NotSupported: of a detached part that requires a gradient, elements that it does not show.
    """
    offset = self.storage_offset() if storage_offset is None else storage_offset
    view = _core.as_strided(self, size, stride, offset)
    if view is not None:
        return view
    places = places_of(self, size, stride, offset)
    copied: Tensor = self.reshape((-1,)).index_select(0, places).reshape(tuple(size))
    return _core.read_only(copied, WRITTEN)


def as_strided_copy(
    input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A copy of what as_strided shows."""
    return as_strided(input, size, stride, storage_offset).clone()


def as_strided_scatter(
    self: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """A copy of `self` with `src` where as_strided reads."""
    if tuple(src.shape) != tuple(size):
        raise ShapeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(size)}"
        )
    places = places_of(self, size, stride, storage_offset)
    return self.reshape((-1,)).index_copy(0, places, src.reshape((-1,))).reshape(self.shape)


def slice_scatter(
    self: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """`self` with `src` where `self[start:end:step]` along `dim` reads; None is where it ends."""
    start, end = 0 if start is None else start, sys.maxsize if end is None else end
    return call("slice_scatter", self, src, dim=dim, start=start, end=end, step=step)


def places_of(
    self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None
) -> Tensor:
    """The flat indices of the elements, once they are known to be inside."""
    if len(size) != len(stride):
        raise ShapeError("mismatch in length of strides and shape")
    if any(step < 0 for step in stride):
        raise ShapeError(
            "as_strided: Negative strides are not supported at the moment, got strides: "
            f"{list(stride)}"
        )
    offset = self.storage_offset() if storage_offset is None else storage_offset
    places = _positions(size, stride, offset)
    if self.storage_offset() or not self.is_contiguous():
        shown = _positions(self.shape, self.stride(), self.storage_offset()).reshape(-1)
        return _uploaded(_found(shown, places))
    needed = (int(places.max()) + 1 if places.size else 0) * self.element_size()
    held = self.numel() * self.element_size()
    if needed > held:
        raise ShapeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and "
            f"itemsize {self.element_size()} requiring a storage size of {needed} are out of "
            f"bounds for storage of size {held}"
        )
    return _uploaded(places)


def _positions(size: Sequence[int], stride: Sequence[int], offset: int) -> Places:
    """Position of each element in the memory: [size]."""
    places = np.array(offset, dtype=np.int64)
    for n, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(n, dtype=np.int64) * step
    return places


def _found(shown: Places, wanted: Places) -> Places:
    """Index in `shown` of each of the positions `wanted`."""
    order = np.argsort(shown, kind="stable")
    at = np.searchsorted(shown, wanted, sorter=order)
    indices: Places = order[np.minimum(at, max(len(order) - 1, 0))] if len(order) else at
    if wanted.size and not (len(order) and np.array_equal(shown[indices], wanted)):
        raise NotSupported(
            "as_strided: elements of the memory that this view does not show; call it of the "
            "tensor that the view was taken of"
        )
    return indices


def _uploaded(places: Places) -> Tensor:
    return _core.from_numpy_copy(np.ascontiguousarray(places.reshape(-1)), _core.int64, False)


def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: _core.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of `size`, contiguous whatever `stride` says."""
    check_layout(layout, "empty_strided")
    if len(size) != len(stride):
        raise ShapeError(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of strides "
            f"({len(stride)})"
        )
    return blank(tuple(size), dtype, requires_grad)


def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: _core.dtype | None = None,
    layout: object = None,
    device: object = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of `size`, contiguous whatever `physical_layout` says.

    Raises:
        ShapeError: a layout that does not name each dimension once.
    """
    check_layout(layout, "empty_permuted")
    if len(size) != len(physical_layout):
        raise ShapeError(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. "
            f"len(size) = {len(size)} is not equal to len(physical_layout) = "
            f"{len(physical_layout)}"
        )
    for place, dim in enumerate(physical_layout):
        if not 0 <= dim < len(size):
            raise ShapeError(
                f"Dimension out of range (expected to be between 0 and {len(size) - 1}, but got "
                f"{dim} at index {place}).  NB: negative dims not currently supported; file an "
                "issue if you want it"
            )
        if dim in physical_layout[:place]:
            raise ShapeError("Duplicate dim not allowed")
    return blank(tuple(size), dtype, requires_grad)


def blank(size: tuple[int, ...], dtype: _core.dtype | None, requires_grad: bool) -> Tensor:
    """Zeros."""
    chosen = _core.get_default_dtype() if dtype is None else dtype
    out: Tensor = call("full", size=size, value=0, dtype=chosen)
    return out.requires_grad_() if requires_grad else out


def new_empty_strided(
    self: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: _core.dtype | None = None,
    device: object = None,
    requires_grad: bool = False,
    layout: object = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of `size` of this dtype, contiguous whatever `stride` says."""
    check_layout(layout, "new_empty_strided")
    chosen = self.dtype if dtype is None else dtype
    return empty_strided(size, stride, dtype=chosen, requires_grad=requires_grad)


def scalar_tensor(
    s: Number,
    *,
    dtype: _core.dtype | None = None,
    layout: object = None,
    device: object = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of one number and no dimensions, in the default dtype if none is given."""
    check_layout(layout, "scalar_tensor")
    chosen = _core.get_default_dtype() if dtype is None else dtype
    out: Tensor = call("full", size=(), value=s, dtype=chosen)
    return out.requires_grad_() if requires_grad else out


def resize_(
    self: Tensor,
    *sizes_: int | Sequence[int],
    size: Sequence[int] | None = None,
    memory_format: object = None,
) -> Tensor:
    """Changes the shape in place: surplus elements are left out, new ones are 0.

    Raises:
        InvalidUse: of a tensor that requires a gradient.
        NotSupported: more elements than its memory has, where others share that memory.
    """
    if self.requires_grad:
        raise InvalidUse("cannot resize variables that require grad")
    shape = sizes(sizes_ if size is None else (size,), "resize_")
    if shape == tuple(self.shape):
        return self
    offset, count = self.storage_offset(), math.prod(shape)
    held, sharing = _core.memory(self)
    source = _core.view_source(self)
    if count and offset + count > held:
        if sharing > 1:
            raise NotSupported(
                f"resize_: {list(shape)} needs more memory than the {held} elements that this "
                "tensor shares with others: make a new tensor, or drop the others first"
            )
        flat = source.as_strided((held,), (1,), 0)
        source = call("cat", flat, blank((offset + count - held,), self.dtype, False), dim=0)
    _core.change_shape(self, source.as_strided(shape, row_major(shape), offset))
    return self


def row_major(size: Sequence[int]) -> list[int]:
    """Strides of a contiguous tensor."""
    strides: list[int] = []
    step = 1
    for n in reversed(size):
        strides.insert(0, step)
        step *= max(n, 1)
    return strides


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: object = None) -> Tensor:
    """resize_ to another tensor's shape."""
    return resize_(self, tuple(the_template.shape))


def to_sparse(
    self: Tensor,
    sparse_dim: int | None = None,
    *,
    layout: object = None,
    blocksize: object = None,
    dense_dim: int | None = None,
) -> Any:  # noqa: ANN401 - a gt.sparse.SparseTensor, which needs this package
    """The elements that are not zero as a `gt.sparse.SparseTensor`; their number is read.

    Raises:
        NotSupported: a layout other than coordinates.
        RuntimeError: a number of dimensions that there is not.
    """
    from gt.compat import sparse

    if layout not in (None, sparse_coo) or blocksize is not None:
        raise NotSupported(
            f"to_sparse: layout={layout}, blocksize={blocksize}: GT has coordinates, x.to_sparse()"
        )
    if sparse_dim is None and dense_dim is not None:
        sparse_dim = self.ndim - dense_dim
    return sparse.of_dense(self, sparse_dim)


def to_dense(
    self: Tensor, dtype: _core.dtype | None = None, *, masked_grad: bool | None = None
) -> Tensor:
    """Itself, in a dtype."""
    del masked_grad
    return self if dtype is None else self.to(dtype)


METHODS: dict[str, Method] = {
    "slice_scatter": slice_scatter,
    "to_sparse": to_sparse,
    "to_dense": to_dense,
    "as_strided": as_strided,
    "as_strided_scatter": as_strided_scatter,
    "new_empty_strided": new_empty_strided,
    "resize_": resize_,
    "resize_as_": resize_as_,
}
FUNCTIONS: dict[str, Method] = {
    "as_strided_copy": as_strided_copy,
    "empty_permuted": empty_permuted,
    "empty_strided": empty_strided,
    "scalar_tensor": scalar_tensor,
}
