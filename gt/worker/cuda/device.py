"""Code that the CUDA kernels of one device share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from gt._kernels import Cuda


class RefusedError(ValueError):
    """Operands that no kernel takes; nothing has been written.

    Args:
        reason: The property that no kernel takes, without shapes.
        text: Message for a direct caller of the kernel.
    """

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(text or reason)
        self.reason = reason


class CudaDevice(NamedTuple):
    """A device and the functions that launch on it."""

    cuda: Cuda
    """The launcher of kernels."""
    device: torch.device
    """Device of every tensor."""
    address: Callable[[str, Tensor | None, torch.dtype], int]
    """Address of a tensor's first element; refuses a tensor that is not on the device."""
    stream: Callable[[], int]
    """The number of the stream on which torch computes at this moment."""


def spanned(shape: Sequence[int], steps: Sequence[int]) -> int:
    """Number of elements from a tensor's first to its last one in memory."""
    last = 0
    for size, step in zip(shape, steps, strict=True):
        if size == 0:
            return 0
        last += (size - 1) * step
    return last + 1
