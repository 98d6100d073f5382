"""The native backend: a worker without PyTorch, whose kernels are numpy's products and gt._kernels.

Values are numpy arrays. A row is quick where its operands are what most are: whole arrays of
float32 (or of one dtype of numpy's, where numpy's own function is the kernel). Anything else is the
numpy backend's, which has every row.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from gt.worker.backend import Backend, Kernel
from gt.worker.compiled.program import Kernels, plain_kernels
from gt.worker.native import chain as native_chain
from gt.worker.native import (
    choices,
    dims,
    elementwise,
    generic,
    indexing,
    losses,
    random,
    reductions,
    updates,
)
from gt.worker.native import threads as native_threads
from gt.worker.native.values import copied, rows
from gt.worker.reference import kernels as reference
from gt.worker.reference.values import DTYPES, Array

# By module, whose docstring says of which operands its rows are quick (docs/ops.md repeats it).
PARTS: dict[str, dict[str, Kernel]] = {
    part.__name__.rpartition(".")[2]: part.kernels()
    for part in (
        elementwise,
        choices,
        reductions,
        dims,
        losses,
        indexing,
        updates,
        random,
        generic,
    )
}
QUICK: dict[str, Kernel] = {row: kernel for part in PARTS.values() for row, kernel in part.items()}
NATIVE: dict[str, Kernel] = reference.NUMPY | QUICK


def backend(threads: int | None = None) -> Backend[Array]:
    """numpy's arrays on the host, by kernels of GT's own.

    Args:
        threads: of a product; None for one.
    """
    native_threads.use(threads or 1)
    return dataclasses.replace(
        reference.backend(),
        name="native",
        kernels=NATIVE | plain_kernels(Kernels(NATIVE, {}, rows), DTYPES, np.int64, reference.meta),
        row_major=rows,
        copy=copied,
        contiguous=rows,
        in_place=elementwise.in_place() | updates.in_place(),
        grouped=updates.grouped(),
        chain=native_chain.run,
    )
