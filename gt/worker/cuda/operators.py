"""GT's CUDA kernels in front of PyTorch's, for the operands that they take (cuda/table.py)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TypeVar, cast

import torch
from torch import Tensor

from gt import config
from gt.worker import own_calls
from gt.worker.cuda import kernels as cuda_kernels
from gt.worker.cuda.device import RefusedError
from gt.worker.cuda.kernels import CudaKernels
from gt.worker.cuda.table import TABLE

R = TypeVar("R")


class CudaOperators:
    """The operators of one device that its kernels run.

    Args:
        kernels: Kernels of the device.
        mode: `auto` uses kernels where they have been timed to be ahead, or have the CPU's bits;
            `on` uses all, and reports the operands that they refuse, once for each operator and
            reason.
    """

    def __init__(self, kernels: CudaKernels, mode: str) -> None:
        self.kernels, self.mode = kernels, mode
        self.names = frozenset(name for name, row in TABLE.items() if row.pays or mode == "on")
        self._told: set[tuple[str, str]] = set()

    def over(self, name: str, other: Callable[..., R]) -> Callable[..., R]:
        """A function that runs the operator's own kernel, and `other`, PyTorch's, for operands that
        it refuses.
        """
        if name not in self.names:
            return other
        row = TABLE[name]
        own = cast("Callable[..., R]", row.run)
        pays = None if self.mode == "on" else row.pays

        def run(*operands: object) -> R:
            if pays is not None and not pays(self.kernels, *operands):
                return other(*operands)
            try:
                result = own(self.kernels, *operands)
            except RefusedError as refused:
                self._tell(name, refused.reason, operands)
            else:
                own_calls.count()
                return result
            return other(*operands)

        return run

    def _tell(self, name: str, reason: str, operands: Iterable[object]) -> None:
        if self.mode != "on" or (name, reason) in self._told:
            return
        self._told.add((name, reason))
        shapes = ", ".join(str(tuple(one.shape)) for one in operands if isinstance(one, Tensor))
        sys.stderr.write(
            f"gt.worker: PyTorch runs {name} in place of GT's own CUDA kernel, which does not take "
            f"{reason}{shapes and f' (operands {shapes})'}; told once\n"
        )


def open_for(device: torch.device) -> CudaOperators | None:
    """The operators of a device; None, with the reason on stderr, if PyTorch runs all.

    GT_KERNELS=off and the CPU give None without a message.
    """
    kernels = cuda_kernels.open_for(device)
    return None if kernels is None else CudaOperators(kernels, config.own_kernels())
