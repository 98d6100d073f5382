"""Sparse tensors of the device `mux` of indices and values, of sizes, or of dense tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

import gt
from gt import _core
from gt.compat.sparse import check_parts, of_dense
from gt.compat.sparse.matrix import SparseTensor
from gt.torch import elsewhere
from gt.torch.elements import DEVICE_TYPE, dtype_of
from gt.torch.sparse_tensor import SparseMuxTensor, of_entries
from gt.torch.tensor import MuxTensor

Whole = Callable[[Sequence[object], Mapping[str, object]], object]


def of_parts(
    sparse_dim: int,
    dense_dim: int,
    size: Sequence[int],
    indices: torch.Tensor,
    values: torch.Tensor,
    *,
    is_coalesced: bool | None = None,
    **_: object,
) -> torch.Tensor:
    """`aten::_sparse_coo_tensor_with_dims_and_tensors`: entries of indices and values.

    Raises:
        RuntimeError: sizes that do not fit, tensors of two devices.
        NotImplementedError: no sparse dimensions.
    """
    del dense_dim  # the values'
    if not isinstance(indices, MuxTensor) and indices.numel() and not elsewhere.uploads_operands:
        raise RuntimeError(
            f"device of indices ({indices.device}) must match device of values ({values.device})"
        )
    if not sparse_dim:
        raise NotImplementedError(
            f"sparse tensors of the device {DEVICE_TYPE} have a sparse dimension: keep one "
            "without on cpu"
        )
    columns, elements = (
        x.value if isinstance(x, MuxTensor) else elsewhere.upload(x).value
        for x in (indices, values)
    )
    check_parts(columns, elements, size)
    columns = columns.to(_core.int64)
    return of_entries(SparseTensor(columns, elements, size, is_coalesced=bool(is_coalesced)))


def of_sizes(
    sparse_dim: int,
    dense_dim: int,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> torch.Tensor:
    """`aten::_sparse_coo_tensor_with_dims`: a tensor without entries."""
    del dense_dim
    return of_entries(empty(sparse_dim, size, dtype_of(dtype)))


def empty(sparse_dim: int, size: Sequence[int], dtype: _core.dtype) -> SparseTensor:
    """A tensor without entries."""
    columns = gt.zeros(sparse_dim, 0, dtype=_core.int64)
    values = gt.zeros(0, *size[sparse_dim:], dtype=dtype)
    return SparseTensor(columns, values, size, is_coalesced=True)


def to_sparse(
    x: MuxTensor,
    sparse_dim: int | None = None,
    *,
    layout: torch.layout | None = None,
    blocksize: Sequence[int] | None = None,
    dense_dim: int | None = None,
) -> torch.Tensor:
    """`aten::_to_sparse`: the elements that are not zero, whose number is read.

    Raises:
        NotImplementedError: another layout than coordinates.
    """
    if layout not in (None, torch.sparse_coo) or blocksize is not None:
        raise elsewhere.layout_refused(torch.ops.aten._to_sparse.default, layout)  # noqa: SLF001
    if isinstance(x, SparseMuxTensor):
        return x
    if sparse_dim is None and dense_dim is not None:
        sparse_dim = x.ndim - dense_dim
    return of_entries(of_dense(x.value, sparse_dim))


def _whole(function: Callable[..., object]) -> Whole:
    return lambda args, kwargs: function(*args, **kwargs)


WHOLE: dict[str, Whole] = {
    "_sparse_coo_tensor_with_dims_and_tensors": _whole(of_parts),
    "_to_sparse": _whole(to_sparse),
    "_to_sparse.sparse_dim": _whole(to_sparse),
}
