"""Row-major copies of torch's tensors on the host, by tiles if the dimensions are transposed."""

from __future__ import annotations

import torch
from torch import Tensor

from gt.worker.pytorch import own_kernels


def row_major(x: Tensor) -> Tensor:
    """The elements in row-major order: `x` itself if they are so.

    Args:
        x: a tensor of any shape and dtype, on the host.
    """
    return x if x.is_contiguous() else copy(x)


def copy(x: Tensor) -> Tensor:
    """A copy of the elements in row-major order.

    Args:
        x: a tensor of any shape and dtype, on the host.
    """
    results = None if x.is_contiguous() or x.is_neg() else own_kernels.run("row_major", x)
    return x.clone(memory_format=torch.contiguous_format) if results is None else results[0]
