"""Rows of the family random of the native backend: gt._kernels fills the result where it is.

Quick: every dtype; `dropout` of float32.
"""

from __future__ import annotations

import numpy as np

from gt import _kernels
from gt.worker.backend import Kernel
from gt.worker.native.values import FLOAT32, is_float32
from gt.worker.random_place import Place, Size
from gt.worker.reference.creation import Random
from gt.worker.reference.values import Array, Bfloat16, storage


def _drawn(kind: str, size: Size, name: str, place: Place, *limits: float) -> Array:
    out = np.empty(size, storage(name))
    whole, start = place.box(size)
    getattr(_kernels, kind)(out, *place.words, *limits, list(whole), list(start))
    return out.view(Bfloat16) if name == "bfloat16" else out


class _Quick(Random):
    def dropout(
        self,
        value: Array,
        p: float,
        seed: int,
        draw: int,
        whole: Size | None = None,
        start: Size | None = None,
    ) -> tuple[Array, Array]:
        if not is_float32(value) or p == 1:
            return super().dropout(value, p, seed, draw, whole, start)
        mask = _drawn("dropout_mask", value.shape, "bool", Place(seed, draw, whole, start), p)
        scaled = np.multiply(value, mask, out=np.empty(value.shape, FLOAT32))
        return np.multiply(scaled, np.float32(1 / (1 - p)), out=scaled), mask


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return _Quick(_drawn).rows()
