"""Calls of gt._kernels' kernels on torch's tensors, by their one entry (csrc/table).

A kernel decides which calls it takes; PyTorch runs the others.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor

from gt import config
from gt.worker.pytorch import threads as torch_threads

_HAS_MKL: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]  # torch's
_THREADS_MAX = 256  # csrc/core/parallel.h


@functools.cache
def _kernels(mode: str) -> ModuleType | None:
    if mode == "off":
        return None
    try:
        return importlib.import_module("gt._kernels")
    except ImportError:
        return None


def module() -> ModuleType | None:
    """gt._kernels; None if it is missing or switched off."""
    return _kernels(config.own_kernels())


def takes_all() -> bool:
    """True if kernels run every call that they can, also where they are slower."""
    return config.own_kernels() == "on"


def threads_most() -> int:
    """Largest number of threads for products and updates: the pool's threads are cheap to wake."""
    return min(torch_threads.most(), _THREADS_MAX)


def threads() -> int:
    """The number of threads of torch's kernels at the moment, at most that of the pool."""
    return min(torch.get_num_threads(), _THREADS_MAX)


def run(kernel: str, *arguments: object) -> tuple[Tensor, ...] | None:
    """The results of a kernel; None if PyTorch is to run the call.

    Args:
        kernel: Name of the kernel in csrc/table.
        arguments: Tensors on any device, numbers, tuples of integers, names of dtypes, or None, in
            the kernel's order. Calls with tensors that autograd follows are left to PyTorch.
    """
    kernels = module()
    tensors = (x for x in arguments if isinstance(x, Tensor))
    if kernels is None or any(x.requires_grad or not x.is_cpu for x in tensors):
        return None
    results: tuple[Tensor, ...] | None = kernels.run(
        kernel,
        arguments,
        _empty,
        threads(),
        threads_most(),
        takes_all(),
        _HAS_MKL,
    )
    return results


_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.uint32, torch.bfloat16, torch.float16, torch.float32, torch.float64),
    )
}


def _empty(dtype: str, sizes: Sequence[int]) -> Tensor:
    return torch.empty(sizes, dtype=_DTYPES[dtype], device="cpu")
