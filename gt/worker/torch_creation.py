"""Rows of the families create and random for torch.

Random values come from `gt._kernels` in the host's memory, so that they are the same bits on every
device; without that module from the numpy definition, slowly.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from gt.worker import random_reference
from gt.worker.backend import Kernel

_kernels: ModuleType | None
try:
    _kernels = importlib.import_module("gt._kernels")
except ImportError:
    _kernels = None

Size = tuple[int, ...]
Number = int | float | bool

_INTEGERS_DRAWN = (torch.int64, torch.int32)
_BERNOULLI_DRAWN = (torch.bool, torch.int64, torch.int32)


def _array(out: Tensor) -> np.ndarray:
    """The memory of a host tensor as numpy has it: bfloat16 as its bits."""
    return (out.view(torch.uint16) if out.dtype == torch.bfloat16 else out).numpy()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Random:
    """Draws on the host and moves to a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def uniform(
        self, size: Size, dtype: torch.dtype, low: float, high: float, seed: int, draw: int
    ) -> Tensor:
        return self._filled("uniform", size, dtype, seed, draw, low, high)

    def normal(
        self, size: Size, dtype: torch.dtype, mean: float, std: float, seed: int, draw: int
    ) -> Tensor:
        return self._filled("normal", size, dtype, seed, draw, mean, std)

    def randint(
        self, size: Size, dtype: torch.dtype, low: int, high: int, seed: int, draw: int
    ) -> Tensor:
        drawn = dtype if dtype in _INTEGERS_DRAWN else torch.int64
        return self._filled("integers", size, drawn, seed, draw, low, high).to(dtype)

    def bernoulli(self, size: Size, dtype: torch.dtype, p: float, seed: int, draw: int) -> Tensor:
        drawn = dtype if dtype in _BERNOULLI_DRAWN or dtype.is_floating_point else torch.bool
        return self._filled("bernoulli", size, drawn, seed, draw, p).to(dtype)

    def dropout(self, self_: Tensor, p: float, seed: int, draw: int) -> tuple[Tensor, Tensor]:
        mask = self._filled("dropout_mask", tuple(self_.shape), torch.bool, seed, draw, p)
        scale = 0.0 if p == 1 else 1 / (1 - p)
        return self_ * mask * scale, mask

    def _filled(
        self, kind: str, size: Size, dtype: torch.dtype, seed: int, draw: int, *limits: float
    ) -> Tensor:
        out = torch.empty(size, dtype=dtype)
        # The wire's integers are signed; a seed is any 64 bits.
        words = (seed % 2**64, draw % 2**64)
        start = (0,) * len(size)
        if _kernels is not None:
            fill = getattr(_kernels, kind)
            fill(_array(out), *words, *limits, list(size), list(start), torch.get_num_threads())
        else:
            draws: Callable[..., np.ndarray] = getattr(random_reference, kind)
            _array(out)[...] = draws(size, _name(dtype), *words, *limits, size, start)
        return out.to(self._device)


def _full(device: torch.device, size: Size, value: Number, dtype: torch.dtype) -> Tensor:
    return torch.full(size, value, dtype=dtype, device=device)


def _arange(
    device: torch.device, start: Number, end: Number, step: Number, dtype: torch.dtype
) -> Tensor:
    return torch.arange(start, end, step, dtype=dtype, device=device)


def _eye(device: torch.device, n: int, m: int, dtype: torch.dtype) -> Tensor:
    return torch.eye(n, m, dtype=dtype, device=device)


def _linspace(
    device: torch.device, start: Number, end: Number, steps: int, dtype: torch.dtype
) -> Tensor:
    return torch.linspace(start, end, steps, dtype=dtype, device=device)


def kernels(device: torch.device) -> dict[str, Kernel]:
    """Kernels by row, for values on `device`."""
    random = Random(device)
    return {
        "full": functools.partial(_full, device),
        "arange": functools.partial(_arange, device),
        "eye": functools.partial(_eye, device),
        "linspace": functools.partial(_linspace, device),
        "uniform": random.uniform,
        "normal": random.normal,
        "randint": random.randint,
        "bernoulli": random.bernoulli,
        "dropout": random.dropout,
    }
