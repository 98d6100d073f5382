"""Contiguous copies of arrays whose dimensions stand in another order: numpy's, bit for bit."""

import itertools

import numpy as np
import pytest

from gt import _kernels
from gt.worker import native_values

POISON = np.float32(7777.0)
SIZES = [(1, 1), (16, 16), (17, 33), (64, 5), (3, 48, 16), (2, 1, 31), (2, 3, 20, 19), (5, 0, 3)]


def _copied(x):
    whole = np.full(x.size + 2, POISON)
    out = whole[1:-1].reshape(x.shape)
    _kernels.strided_copy(x, out)
    assert whole[0] == whole[-1] == POISON
    return out


@pytest.mark.parametrize("size", SIZES)
def test_every_order_of_dimensions(size):
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    for order in itertools.permutations(range(len(size))):
        view = x.transpose(order)
        assert np.array_equal(_copied(view), view)


def test_steps_parts_and_dimensions_that_are_spread():
    x = np.random.default_rng(0).standard_normal((40, 36, 5)).astype(np.float32)
    for view in (
        x[::2, ::-3], x[::-1].T, x[3:37, 1:35].transpose(2, 1, 0), x[:, :, 2].T, x[0, 0, :1],
        np.broadcast_to(x[:, :1], (40, 36, 5)).transpose(1, 2, 0), x[0, 0, 0],
        np.broadcast_to(x[0].T, (3, 5, 36)).swapaxes(1, 2),
    ):  # fmt: skip
        assert np.array_equal(_copied(view), view)


def test_what_does_not_fit_is_refused():
    x = np.zeros((4, 5), np.float32)
    with pytest.raises(ValueError, match="out has 19 elements, not 20"):
        _kernels.strided_copy(x.T, np.empty(19, np.float32))
    with pytest.raises(TypeError):
        _kernels.strided_copy(x.astype(np.float64).T, np.empty(20, np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.bool_])
def test_copies_of_the_native_backend(dtype):
    x = np.random.default_rng(0).integers(0, 9, (70, 80)).astype(dtype)
    for view in (x, x.T, x[:3].T, x[::2].T, x[:0].T, x[0, 0], x[:, 5]):
        copy = native_values.copied(view)
        assert copy.flags.c_contiguous
        assert np.array_equal(copy, view)
        assert copy.dtype == dtype
        assert not np.shares_memory(copy, x)
