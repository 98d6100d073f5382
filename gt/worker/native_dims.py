"""Rows of the native backend that look at one dimension, or at some that stand beside each other.

Quick: contiguous float32 with elements, without `dtype`.
"""

from __future__ import annotations

import math

import numpy as np

from gt import _kernels
from gt.worker import native_threads
from gt.worker.backend import Kernel
from gt.worker.native_values import FLOAT32, is_rows
from gt.worker.reference import NUMPY
from gt.worker.reference_values import Array


def _cumsum(self: Array, dim: int, dtype: str | None) -> object:
    if not is_rows(self) or not self.size or self.ndim == 0 or dtype is not None:
        return NUMPY["cumsum"](self, dim, dtype)
    out = np.empty(self.shape, FLOAT32)
    inner = math.prod(self.shape[dim % self.ndim + 1 :])
    _kernels.cumsum(self, out, self.shape[dim], inner, native_threads.count())
    return out


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {"cumsum": _cumsum}
