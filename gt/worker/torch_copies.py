"""Row-major copies of torch's tensors on the host, by tiles where the dimensions are turned."""

from __future__ import annotations

import torch
from torch import Tensor

from gt.worker import own_kernels
from gt.worker.kernel_sizes import TURNED_MIN

_REGISTER_BYTES = 16  # as in gt/worker/native/own_copies.cpp
_DTYPES = frozenset({
    torch.bool, torch.int32, torch.int64, torch.bfloat16, torch.float16, torch.float32,
    torch.float64,
})  # fmt: skip


def row_major(x: Tensor) -> Tensor:
    """The same elements in row-major order: the same object where they are so.

    Args:
        x: of any shape and dtype, on the host.
    """
    return x if x.is_contiguous() else copy(x)


def copy(x: Tensor) -> Tensor:
    """The same elements in row-major order, in memory of their own.

    Args:
        x: of any shape and dtype, on the host.
    """
    kernels = own_kernels.module() if _is_turned(x) else None
    if kernels is None:
        return x.clone(memory_format=torch.contiguous_format)
    out = x.new_empty(x.shape)
    kernels.strided_copy(x, out, own_kernels.threads())
    return out


def _is_turned(x: Tensor) -> bool:
    """Whether neighbours in the copy are none here, but others are, a square or more of both."""
    if x.is_contiguous() or x.numel() < TURNED_MIN or x.dtype not in _DTYPES or x.is_neg():
        return False
    least = max(4, _REGISTER_BYTES // x.element_size())
    dims = [dim for dim in zip(x.shape, x.stride(), strict=True) if dim[0] != 1]
    size, stride = dims.pop()
    is_far = stride > 1 and size >= least
    return is_far and any(stride == 1 and size >= least for size, stride in dims)
