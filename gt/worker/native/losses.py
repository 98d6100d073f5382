"""Rows of the family loss of the native backend: cross-entropy and mean squared error.

Quick: cross-entropy of contiguous float32 [n, classes] and targets of int64, without weights of
classes, smoothing or a cut along the classes; squared errors of float32 of one shape.
"""

from __future__ import annotations

from gt.worker.backend import Kernel
from gt.worker.native import entry

_ROWS = ("cross_entropy", "cross_entropy_backward", "mse_loss", "mse_loss_backward")


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {row: entry.of_row(row) for row in _ROWS}
