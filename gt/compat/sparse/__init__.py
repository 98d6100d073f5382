"""`gt.sparse`: tensors in coordinate format, with differentiable products of sparse and dense
matrices.
"""

from collections.abc import Callable, Sequence
from typing import Any

import gt
from gt._core import Tensor
from gt.compat import misses
from gt.compat.sparse.matrix import SparseTensor
from gt.errors import IndexOutOfRange, InvalidUse, NotSupported, ShapeError

__all__ = [
    "BFloat16Tensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor",
    "IntTensor", "LongTensor", "ShortTensor", "SparseTensor", "addmm", "mm", "spmm", "sum",
]  # fmt: skip


def sparse_coo_tensor(
    indices: Any,  # noqa: ANN401 - a tensor or nested lists, as gt.tensor takes
    values: Any = None,  # noqa: ANN401
    size: Sequence[int] | None = None,
    *,
    dtype: gt.dtype | None = None,
    layout: object = None,
    device: object = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """A sparse tensor of indices [sparse dimensions, n] and values [n, dense dimensions ...]; of
    sizes alone one of no elements.

    Args:
        indices: integers, a tensor or nested lists.
        values: a tensor, to which gradients go, or a list.
        size: sizes; if not given the smallest that hold the indices, which are read for it.
        dtype: of the values.
        layout: `gt.sparse_coo`, if anything.
        device: accepted: it places nothing.
        pin_memory: accepted and ignored.
        requires_grad: the values, taken without their history, require a gradient.
        check_invariants: whether indices are read and compared with the sizes.
        is_coalesced: the caller knows that indices are in order and different.

    Raises:
        RuntimeError: numbers of indices, values and sizes that do not fit.
        NotSupported: no sparse dimensions, another layout.
    """
    del device, pin_memory
    _check_layout(layout)
    if values is None:
        return _empty(indices, dtype, requires_grad=requires_grad)
    columns = indices if isinstance(indices, Tensor) else gt.tensor(indices)
    columns = columns.to(gt.int64)
    elements = values if isinstance(values, Tensor) else gt.tensor(values)
    if dtype is not None:
        elements = elements.to(dtype)
    if requires_grad:
        elements = elements.detach().clone().requires_grad_()
    if columns.ndim != 2:
        raise ShapeError(f"indices must be sparse_dim x nnz, but got: {list(columns.shape)}")
    if not columns.shape[0]:
        raise NotSupported("sparse_coo_tensor: no dimensions")
    shape = (*_smallest(columns), *elements.shape[1:]) if size is None else tuple(size)
    check_parts(columns, elements, shape)
    if check_invariants:
        _check(columns, shape[: columns.shape[0]])
    return SparseTensor(columns, elements, shape, is_coalesced=bool(is_coalesced))


def check_parts(columns: Tensor, elements: Tensor, shape: Sequence[int]) -> None:
    """Compares the numbers of indices, values and sizes.

    Raises:
        RuntimeError: they differ.
    """
    if elements.shape[:1] != columns.shape[1:]:
        raise ShapeError(
            "indices and values must have same nnz, but got nnz from indices: "
            f"{columns.shape[1]}, nnz from values: {elements.shape[0] if elements.ndim else 1}"
        )
    sparse_dim = columns.shape[0]
    if len(shape) != sparse_dim + elements.ndim - 1:
        raise ShapeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, "
            f"sparse_dim = {sparse_dim}, dense_dim = {elements.ndim - 1}"
        )
    expected = [elements.shape[0], *shape[sparse_dim:]]
    if list(elements.shape) != expected:
        raise ShapeError(
            f"values has incorrect size, expected {expected}, got {list(elements.shape)}"
        )


def _check_layout(layout: object) -> None:
    if layout is not None and layout is not gt.sparse_coo:
        raise NotSupported(f"sparse_coo_tensor: layout={layout!r}, where GT has gt.sparse_coo")


def _empty(size: object, dtype: gt.dtype | None, *, requires_grad: bool) -> SparseTensor:
    if not isinstance(size, list | tuple):
        raise InvalidUse("sparse_coo_tensor() takes indices and values, or sizes alone")
    columns = gt.zeros(len(size), 0, dtype=gt.int64)
    values = gt.zeros(0, dtype=dtype).requires_grad_(requires_grad)
    return SparseTensor(columns, values, size)


def _smallest(columns: Tensor) -> tuple[int, ...]:
    if not columns.shape[1]:
        return (0,) * columns.shape[0]
    return tuple((columns.amax(1) + 1).numpy().tolist())


def _check(columns: Tensor, shape: Sequence[int]) -> None:
    """Compares indices with sizes.

    Raises:
        RuntimeError: one that is outside.
    """
    for dim, (row, size) in enumerate(zip(columns.numpy().tolist(), shape, strict=True)):
        outside = [index for index in row if not 0 <= index < size]
        if outside and min(outside) < 0:
            raise InvalidUse(f"found negative index {min(outside)} for dim {dim}")
        if outside:
            raise InvalidUse(
                f"size is inconsistent with indices: for dim {dim}, size is {size} but found index "
                f"{max(outside)}"
            )


def mm(mat1: SparseTensor | Tensor, mat2: Tensor | SparseTensor) -> Tensor:
    """The product of two matrices of which one is sparse: a dense one."""
    if isinstance(mat1, SparseTensor):
        return mat1.mm(mat2)
    return mat2.__rmatmul__(mat1) if isinstance(mat2, SparseTensor) else mat1.mm(mat2)


spmm = mm


def addmm(
    mat: Tensor, mat1: SparseTensor, mat2: Tensor, *, beta: float = 1.0, alpha: float = 1.0
) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2), of a sparse `mat1`."""
    return mat * beta + mat1.mm(mat2) * alpha


def sum(
    input: SparseTensor, dim: int | Sequence[int] | None = None, dtype: gt.dtype | None = None
) -> Any:  # noqa: ANN401 - a dense tensor or a sparse one
    """The sum of a sparse tensor: dense over everything, sparse over some dimensions.

    Args:
        input: any shape.
        dim: dimensions.
        dtype: to which values are cast first.
    """
    return (input if dtype is None else input.to(dtype)).sum(dim)


def of_dense(input: Tensor, sparse_dim: int | None = None) -> SparseTensor:
    """The elements of a dense tensor that are not zero, coalesced; their number is read.

    Args:
        input: any shape.
        sparse_dim: number of sparse dimensions; all of them.

    Raises:
        RuntimeError: a number that is none of its dimensions'.
        IndexError: a tensor without dimensions.
    """
    if not input.ndim:
        raise IndexOutOfRange("to_sparse of a tensor without dimensions")
    sparse_dim = input.ndim if sparse_dim is None else sparse_dim
    if not 0 <= sparse_dim <= input.ndim:
        raise ShapeError(
            f"dense_to_sparse: sparse_dim argument must be in [0,{input.ndim}] range, but "
            f"{sparse_dim} is given"
        )
    if not sparse_dim:
        raise ShapeError("dense_to_sparse: sparse_dim argument must be in >0 when self.dim()>0")
    is_held = input.detach() != 0
    if sparse_dim < input.ndim:
        is_held = is_held.flatten(sparse_dim).any(-1)
    columns = is_held.nonzero().t().contiguous()
    values = input[tuple(columns.unbind(0))]
    return SparseTensor(columns, values, input.shape, is_coalesced=True)


def _constructor(name: str, dtype: gt.dtype) -> Callable[..., SparseTensor]:
    """PyTorch's oldest constructor of sparse tensors of a dtype."""

    def construct(*data: Any, device: object = None) -> SparseTensor:  # noqa: ANN401
        is_size = all(isinstance(part, int) for part in data)
        parts = (data or (0,),) if is_size else data
        return sparse_coo_tensor(*parts, dtype=dtype, device=device)

    construct.__name__ = construct.__qualname__ = name
    construct.__doc__ = f"`gt.sparse_coo_tensor(indices, values, size, dtype={dtype!r})`."
    return construct


BFloat16Tensor = _constructor("BFloat16Tensor", gt.bfloat16)
ByteTensor = _constructor("ByteTensor", gt.uint8)
CharTensor = _constructor("CharTensor", gt.int8)
DoubleTensor = _constructor("DoubleTensor", gt.float64)
FloatTensor = _constructor("FloatTensor", gt.float32)
HalfTensor = _constructor("HalfTensor", gt.float16)
IntTensor = _constructor("IntTensor", gt.int32)
LongTensor = _constructor("LongTensor", gt.int64)
ShortTensor = _constructor("ShortTensor", gt.int16)

__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
