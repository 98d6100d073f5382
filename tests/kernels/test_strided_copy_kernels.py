"""Contiguous copies of arrays whose dimensions stand in another order: numpy's, bit for bit."""

import itertools

import numpy as np
import pytest
import torch
from kernel_arrays import run

from gt import _kernels
from gt.worker.native import values as native_values
from gt.worker.reference.values import Bfloat16

DTYPES = [
    np.bool_,
    np.uint8,
    np.int16,
    np.float16,
    np.float32,
    np.int32,
    np.float64,
    np.int64,
    np.uint16,
]
SIZES = [
    (1, 1), (16, 16), (17, 33), (64, 5), (3, 48, 16), (2, 1, 31), (2, 3, 20, 19), (5, 0, 3),
    (130, 70), (64, 512), (3, 200, 129), (2, 3, 5, 7, 4),
]  # fmt: skip


def _bits(*size, dtype=np.float32):
    """Any bits: of numbers also what is none."""
    random = np.random.default_rng(sum(size))
    if dtype is np.bool_:
        return random.integers(0, 2, size).astype(np.bool_)
    count = int(np.prod(size)) * np.dtype(dtype).itemsize
    return np.frombuffer(random.bytes(count), dtype).reshape(size)


def _copied(x, threads=1):
    results = run(_kernels, "row_major", x, threads=threads)
    if not x.size:
        assert results is None
        return x.copy()
    return results[0]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_of_dimensions(dtype, size):
    x = _bits(*size, dtype=dtype)
    for order in itertools.permutations(range(len(size))):
        view = x.transpose(order)
        for threads in (1, 3):
            assert _copied(view, threads).tobytes() == view.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_parts_and_dimensions_that_are_spread(dtype):
    x = _bits(40, 36, 5, dtype=dtype)
    for view in (
        x[::2, ::-3], x[::-1].T, x[3:37, 1:35].transpose(2, 1, 0), x[:, :, 2].T, x[0, 0, :1],
        np.broadcast_to(x[:, :1], (40, 36, 5)).transpose(1, 2, 0), x[0, 0, 0, ...],
        np.broadcast_to(x[0].T, (3, 5, 36)).swapaxes(1, 2), x[1:, 3:, 1:].T,
    ):  # fmt: skip
        assert _copied(view).tobytes() == view.tobytes()


def test_other_elements_are_not_taken():
    x = np.zeros((4, 5), np.complex64)
    assert run(_kernels, "row_major", x.T) is None
    assert run(_kernels, "row_major", torch.zeros(4, 5, device="meta")) is None


@pytest.mark.parametrize("dtype", [*DTYPES, np.complex64])
def test_copies_of_the_native_backend(dtype):
    x = np.random.default_rng(0).integers(0, 9, (70, 80)).astype(dtype)
    for view in (x, x.T, x[:3].T, x[::2].T, x[:0].T, x[0, 0], x[:, 5]):
        copy = native_values.copied(view)
        assert copy.flags.c_contiguous
        assert np.array_equal(copy, view)
        assert copy.dtype == dtype
        assert not np.shares_memory(copy, x)


def test_copies_of_bfloat16_stay_so():
    x = _bits(70, 80, dtype=np.uint16).view(Bfloat16)
    before = _kernels.calls()
    copy = native_values.copied(x.T)
    assert _kernels.calls() == before + 1
    assert type(copy) is Bfloat16
    assert copy.tobytes() == x.T.tobytes()
