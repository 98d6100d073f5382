"""What gt._kernels runs on the CPU in place of PyTorch, by operator, dtype and size.

The sizes stand in kernel_sizes.py; the table of a GPU's kernels in cuda_table.py.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from gt import config
from gt.worker import torch_threads
from gt.worker.kernel_sizes import CHANNEL_MIN, PRODUCT_WORK_MIN, QUERIES_MIN, UPDATE_ELEMENTS_MIN

_THREADS_MAX = 256  # csrc/core/parallel.h


class _Row(NamedTuple):
    """Which operands a kernel takes, and of which shapes it pays."""

    dtypes: tuple[torch.dtype, ...]
    pays: Callable[..., bool]  # of the operands, in their order


def _is_product(left: Tensor, right: Tensor, *_: Tensor) -> bool:
    """With less to do another thread does not help, and with one the kernel is as fast as MKL."""
    return left.numel() * right.shape[-1] >= PRODUCT_WORK_MIN


def _is_update(param: Tensor, *_: Tensor) -> bool:
    return param.numel() >= UPDATE_ELEMENTS_MIN


def _has_queries(query: Tensor, key: Tensor, *_: Tensor) -> bool:
    """The kernel's vectors hold a query in each place: a few leave most of a vector empty."""
    return query.shape[-2] >= QUERIES_MIN and key.shape[-2] > 0


def _has_channels(input: Tensor, *_: Tensor) -> bool:
    """The loops go over a channel's numbers that stand beside each other, or over channels."""
    if input.dim() < 2 or not input.numel():
        return False
    inner = input.numel() // (input.shape[0] * input.shape[1])
    return inner == 1 or inner >= CHANNEL_MIN


def _always(*_: Tensor) -> bool:
    """One pass, where PyTorch makes several operators or a division for each element of it."""
    return True


_TABLE = {
    "attention": _Row((torch.float32,), _has_queries),
    "attention_backward": _Row((torch.float32,), _has_queries),
    "rms_norm": _Row((torch.float32,), _always),
    "rms_norm_backward": _Row((torch.float32,), _always),
    "batch_norm": _Row((torch.float32,), _has_channels),
    "batch_norm_backward": _Row((torch.float32,), _has_channels),
    "var": _Row((torch.float32,), _always),
    "std": _Row((torch.float32,), _always),
    "matmul": _Row((torch.float32,), _is_product),
    "adam": _Row((torch.float32,), _is_update),
}


@functools.cache
def _kernels(mode: str) -> ModuleType | None:
    if mode == "off":
        return None
    try:
        return importlib.import_module("gt._kernels")
    except ImportError:
        return None


def module() -> ModuleType | None:
    """gt._kernels; None where it is not there or switched off."""
    return _kernels(config.own_kernels())


def sizes() -> tuple[int, int, int]:
    """The least work of a product, elements of an update and queries of attention that pay."""
    if config.own_kernels() == "on":
        return 1, 1, 1
    return PRODUCT_WORK_MIN, UPDATE_ELEMENTS_MIN, QUERIES_MIN


def threads_most() -> int:
    """As many as the kernels ever have: what runs products and updates, whose threads of our own
    are cheap to wake.
    """
    return min(torch_threads.most(), _THREADS_MAX)


def threads() -> int:
    """As many as torch's kernels have at the moment, and no more than the pool of ours takes."""
    return min(torch.get_num_threads(), _THREADS_MAX)


def chosen(operator: str, *operands: Tensor) -> ModuleType | None:
    """The module whose function `operator` runs it on these operands; None: PyTorch does.

    Args:
        operator: A row of the table.
        operands: On any device; those that autograd follows are PyTorch's.
    """
    mode = config.own_kernels()
    kernels = _kernels(mode)
    row = _TABLE[operator]
    fits = (
        kernels is not None
        and hasattr(kernels, operator)
        and not any(x.requires_grad for x in operands)
        and all(x.is_cpu and x.dtype in row.dtypes for x in operands)
        and (mode == "on" or row.pays(*operands))
    )
    return kernels if fits else None
