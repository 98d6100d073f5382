"""A worker whose GPU is played: GT's CUDA kernels run under the emulator, on the host's memory.

Started as `python -m gt.worker` is, with the stand-in of CUDA's driver in PLAYED_DRIVER.
"""

import os
import sys

import torch
from played_cuda import CPU, Played, driver_of

from gt import config
from gt.worker import __main__
from gt.worker.cuda.operators import CudaOperators
from gt.worker.pytorch import kernels

_host = kernels.backend


def backend(_device: torch.device) -> kernels.Backend[torch.Tensor]:
    """PyTorch on the host, with the operators of GT's own that a GPU would have."""
    host, mode = _host(CPU), config.own_kernels()
    if mode == "off":
        return host
    library = os.environ["PLAYED_DRIVER"]
    own = CudaOperators(Played(library, driver_of(library)), mode)
    return kernels.with_own(host, CPU, own)


if __name__ == "__main__":
    kernels.backend = backend
    sys.exit(__main__.main())
