"""Rows of the families create and random for torch.

Random values come from `gt._kernels`: in a GPU's memory if its CUDA kernels run, else in the host's
memory and then moved, with the same bits. Without that module they come from the numpy definition,
slowly.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from gt.worker.backend import Kernel
from gt.worker.cuda.operators import CudaOperators
from gt.worker.pytorch import own_kernels
from gt.worker.random_place import Place, Size
from gt.worker.reference import random_numbers

_kernels: ModuleType | None
try:
    _kernels = importlib.import_module("gt._kernels")
except ImportError:
    _kernels = None

Number = int | float | bool

_INTEGERS_DRAWN = (torch.int64, torch.int32)
_BERNOULLI_DRAWN = (torch.bool, torch.int64, torch.int32)


def _array(out: Tensor) -> np.ndarray:
    """The memory of a host tensor as a numpy array; bfloat16 as its bits."""
    return (out.view(torch.uint16) if out.dtype == torch.bfloat16 else out).numpy()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Random:
    """Draws in a device's memory, or draws on the host and copies to the device.

    Args:
        device: Device of the results.
        own: The device's operators of GT's own, if it has any.
    """

    def __init__(self, device: torch.device, own: CudaOperators | None = None) -> None:
        self._device = device
        self._is_drawn_on_host = own is None
        self._filled, self._dropped = self._fill_on_host, self._drop_by_mask
        if own is not None:
            self._filled = own.over("random", self._filled)
            self._dropped = own.over("dropout", self._dropped)

    def uniform(
        self,
        size: Size,
        dtype: torch.dtype,
        low: float,
        high: float,
        seed: int,
        draw: int,
        whole: Size | None = None,
        start: Size | None = None,
    ) -> Tensor:
        place = Place(seed, draw, whole, start)
        return self._filled("uniform", size, dtype, place, low, high)

    def normal(
        self,
        size: Size,
        dtype: torch.dtype,
        mean: float,
        std: float,
        seed: int,
        draw: int,
        whole: Size | None = None,
        start: Size | None = None,
    ) -> Tensor:
        place = Place(seed, draw, whole, start)
        return self._filled("normal", size, dtype, place, mean, std)

    def randint(
        self,
        size: Size,
        dtype: torch.dtype,
        low: int,
        high: int,
        seed: int,
        draw: int,
        whole: Size | None = None,
        start: Size | None = None,
    ) -> Tensor:
        drawn = dtype if dtype in _INTEGERS_DRAWN else torch.int64
        place = Place(seed, draw, whole, start)
        return self._filled("integers", size, drawn, place, low, high).to(dtype)

    def bernoulli(
        self,
        size: Size,
        dtype: torch.dtype,
        p: float,
        seed: int,
        draw: int,
        whole: Size | None = None,
        start: Size | None = None,
    ) -> Tensor:
        is_drawable = dtype in _BERNOULLI_DRAWN or dtype.is_floating_point
        drawn = dtype if is_drawable and self._is_drawn_on_host else torch.bool
        place = Place(seed, draw, whole, start)
        return self._filled("bernoulli", size, drawn, place, p).to(dtype)

    def like(
        self,
        _like: Tensor,
        size: Size,
        dtype: torch.dtype,
        kind: str,
        first: Number,
        second: Number,
        *place: int | Size | None,
    ) -> Tensor:
        parameters = (first,) if kind == "bernoulli" else (first, second)
        draws: Callable[..., Tensor] = getattr(self, kind)
        return draws(size, dtype, *parameters, *place)

    def dropout(
        self,
        self_: Tensor,
        p: float,
        seed: int,
        draw: int,
        whole: Size | None = None,
        start: Size | None = None,
    ) -> tuple[Tensor, Tensor]:
        return self._dropped(self_, p, Place(seed, draw, whole, start))

    def _drop_by_mask(self, x: Tensor, p: float, place: Place) -> tuple[Tensor, Tensor]:
        mask = self._filled("dropout_mask", tuple(x.shape), torch.bool, place, p)
        scale = 0.0 if p == 1 else 1 / (1 - p)
        return x * mask * scale, mask

    def _fill_on_host(
        self, kind: str, size: Size, dtype: torch.dtype, place: Place, *limits: float
    ) -> Tensor:
        out = torch.empty(size, dtype=dtype)
        whole, start = place.box(size)
        if _kernels is not None:
            fill = getattr(_kernels, kind)
            threads = own_kernels.threads()
            fill(_array(out), *place.words, *limits, list(whole), list(start), threads)
        else:
            draws: Callable[..., np.ndarray] = getattr(random_numbers, kind)
            _array(out)[...] = draws(size, _name(dtype), *place.words, *limits, whole, start)
        return out.to(self._device)


def _full(device: torch.device, size: Size, value: Number, dtype: torch.dtype) -> Tensor:
    return torch.full(size, value, dtype=dtype, device=device)


def _full_like(
    device: torch.device, _like: Tensor, size: Size, value: Number, dtype: torch.dtype
) -> Tensor:
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


def kernels(device: torch.device, own: CudaOperators | None = None) -> dict[str, Kernel]:
    """Kernels by row, for values on `device`.

    Args:
        device: Device of the values.
        own: The device's operators of GT's own, if it has any.
    """
    random = Random(device, own)
    return {
        "full": functools.partial(_full, device),
        "full_like": functools.partial(_full_like, device),
        "arange": functools.partial(_arange, device),
        "eye": functools.partial(_eye, device),
        "linspace": functools.partial(_linspace, device),
        "uniform": random.uniform,
        "normal": random.normal,
        "randint": random.randint,
        "bernoulli": random.bernoulli,
        "random_like": random.like,
        "dropout": random.dropout,
    }
