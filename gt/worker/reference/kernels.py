"""The numpy backend: a plain, unoptimised implementation of every row of ops.toml, without torch.

Tests compare the torch kernels with it, and a worker without torch computes with it.
"""

from __future__ import annotations

import contextlib

import numpy as np

from gt.worker.backend import Backend, Kernel
from gt.worker.compiled.program import Kernels, plain_kernels
from gt.worker.reference import creation, elementwise, generic, indexing, losses, reductions
from gt.worker.reference.values import (
    DTYPES,
    Array,
    Bfloat16,
    dtype_name,
    storage,
)

NUMPY: dict[str, Kernel] = {
    **creation.kernels(),
    **elementwise.kernels(),
    **reductions.kernels(),
    **losses.kernels(),
    **indexing.kernels(),
    **generic.kernels(),
}


def backend() -> Backend[Array]:
    """The backend of numpy on the host."""
    return Backend(
        name="numpy",
        kernels=NUMPY | plain_kernels(Kernels(NUMPY, {}, _contiguous), DTYPES, np.int64, meta),
        number_first={},
        in_place={},
        dtypes=DTYPES,
        out_of_memory=MemoryError,
        guard=quiet,
        allocate=indexing.allocate,
        row_major=_contiguous,
        strides=_strides,
        copy=_copy,
        contiguous=_contiguous,
        address=_address,
        length=_length,
        write=None,
        meta=meta,
        memory_bytes=_memory_bytes,
        synchronize=_no_wait,
    )


def quiet() -> contextlib.AbstractContextManager[object]:
    """Silences numpy's warnings: infinities and NaNs are results here, as in torch."""
    return np.errstate(all="ignore")


def from_bytes(data: bytes, name: str, size: tuple[int, ...]) -> Array:
    """The array of these bytes in row-major order."""
    array = np.frombuffer(data, storage(name)).reshape(size)
    return array.view(Bfloat16) if name == "bfloat16" else array


def _contiguous(value: Array) -> Array:
    return np.asanyarray(value, order="C")  # ascontiguousarray would give a number a dimension


def _strides(value: Array) -> tuple[int, ...]:
    return tuple(stride // value.itemsize for stride in value.strides)


def _copy(value: Array) -> Array:
    return np.array(value, order="C", subok=True)


def _address(value: Array) -> int:
    return int(value.ctypes.data)


def _length(value: Array) -> int:
    return int(value.nbytes)


def _memory_bytes(value: Array) -> int:
    while isinstance(value.base, np.ndarray):
        value = value.base
    return int(value.nbytes)


def meta(value: Array) -> tuple[int, tuple[int, ...]]:
    return DTYPES.index(dtype_name(value)), value.shape


def _no_wait() -> None:
    """Does nothing: numpy has computed when it returns."""


__all__ = ["DTYPES", "NUMPY", "backend", "from_bytes", "quiet"]
