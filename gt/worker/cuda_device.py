"""What the CUDA kernels of one device have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from gt._kernels import Cuda


class CudaDevice(NamedTuple):
    """A device and the way to launch on it."""

    cuda: Cuda
    """What launches."""
    device: torch.device
    """Of every tensor."""
    address: Callable[[str, Tensor | None, torch.dtype], int]
    """Where a tensor's first element is; it refuses what is not on the device."""
    stream: Callable[[], int]
    """The number of the stream on which torch computes at this moment."""
