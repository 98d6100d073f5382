"""Choices by bools of elements of every dtype: numpy's, bit for bit."""

import math

import numpy as np
import pytest
import torch

from gt import _kernels
from gt.worker.native.kernels import NATIVE

DTYPES = [
    np.bool_, np.float16, np.uint16, np.int32, np.float32, np.int64, np.float64
]  # fmt: skip
SIZES = [(0,), (1,), (15,), (64,), (1000,), (33, 129), (3, 20_000)]
POISON = b"\x01"


@pytest.fixture(autouse=True, params=_kernels.paths())
def path(request):
    """Runs each test once for each instruction set of this machine."""
    _kernels.set_path(request.param)
    yield
    _kernels.set_path("auto")


def _bits(dtype, *size, seed=0):
    random = np.random.default_rng(sum(size) + seed)
    if dtype is np.bool_:
        return random.integers(0, 2, size).astype(np.bool_)
    count = int(np.prod(size)) * np.dtype(dtype).itemsize
    return np.frombuffer(random.bytes(count), dtype).reshape(size)


def _poisoned(dtype, *size):
    """Room for a result between two elements that must stay as they are."""
    whole = np.frombuffer(
        POISON * (int(np.prod(size)) + 2) * np.dtype(dtype).itemsize, dtype
    ).copy()
    return whole, whole[1:-1].reshape(size)


def _check(condition, x, y, out, wanted, threads):
    whole, result = out
    before = whole[:1].tobytes() + whole[-1:].tobytes()
    _kernels.where(condition, x, y, result, threads)
    assert result.tobytes() == wanted.tobytes()
    assert whole[:1].tobytes() + whole[-1:].tobytes() == before


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_form_of_operands(dtype, size):
    x, y = _bits(dtype, *size), _bits(dtype, *size, seed=1)
    one, other = _bits(dtype, 1), _bits(dtype, 1, seed=1)
    condition = np.random.default_rng(0).random(size) < 0.5
    conditions = [condition, condition[-1:], np.ones(1, np.bool_)] if 0 not in size else [condition]
    for flags in conditions:
        for left, right in ((x, y), (x, other), (one, y), (one, other)):
            wanted = np.where(flags, left, right)
            wanted = np.broadcast_to(wanted, size)
            for threads in (1, 3):
                _check(flags, left, right, _poisoned(dtype, *size), wanted, threads)


@pytest.mark.parametrize("dtype", DTYPES)
def test_over_an_operand(dtype):
    for size in ((1,), (17,), (70, 999)):
        condition = np.random.default_rng(0).random(size) < 0.5
        x, y = _bits(dtype, *size), _bits(dtype, *size, seed=1)
        for other in (y, _bits(dtype, 1)):
            out = _poisoned(dtype, *size)
            out[1][...] = x
            _check(condition, out[1], other, out, np.where(condition, x, other), 3)
            out[1][...] = x
            _check(condition, other, out[1], out, np.where(condition, other, x), 3)


def test_what_does_not_fit_is_refused():
    x, short = np.zeros(4, np.float32), np.zeros(3, np.float32)
    for given in [(x > 0, x, short, x), (x > 0, short, x, x), (x > 0, x, x, short)]:
        with pytest.raises(ValueError, match=r"where: . has . elements, not"):
            _kernels.where(*given)
    with pytest.raises(ValueError, match="out has 4 elements, condition 3"):
        _kernels.where(short > 0, x, x, x)
    with pytest.raises(ValueError, match="out has 4 elements, condition 0"):
        _kernels.where(short[:0] > 0, x, x, x)
    with pytest.raises(ValueError, match="y is not contiguous"):
        _kernels.where(x > 0, x, np.zeros(8, np.float32)[::2], x)
    with pytest.raises(TypeError, match="condition is not of bool"):
        _kernels.where(x, x, x, x)
    with pytest.raises(TypeError, match="float64 into float32"):
        _kernels.where(x > 0, x, x.astype(np.float64), x)
    with pytest.raises(ValueError, match="threads 0"):
        _kernels.where(x > 0, x, x, x, 0)


def test_choices_by_a_condition():
    random = np.random.default_rng(1)
    for size in ((0,), (1,), (15,), (64,), (33, 5)):
        x, y = (random.standard_normal(size).astype(np.float32) for _ in range(2))
        condition = random.standard_normal(size) > 0
        for pair in ((x, y), (x, 0.5), (2.5, y), (x, y[..., :1]), (x[None], y)):
            for flags in (condition, condition[..., :1], condition[None], np.array(True)):
                found = NATIVE["where"](flags, *pair)
                wanted = np.where(flags, *pair)
                assert np.array_equal(found, wanted)
                assert found.dtype == np.float32
        for value in (7, -math.inf, math.nan, True):
            for flags in (condition, condition[..., :1]):
                found = NATIVE["masked_fill"](x, flags, value)
                wanted = torch.tensor(x).masked_fill(torch.tensor(flags), value)
                np.testing.assert_array_equal(found, wanted.numpy())


def _ran(row, *operands):
    """The row's result, and whether a kernel made it."""
    before = _kernels.calls()
    found = NATIVE[row](*operands)
    return found, _kernels.calls() > before


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.int64, np.float16, np.float64])
def test_choices_of_other_dtypes(dtype):
    """Choices of other dtypes equal PyTorch's and run in kernels; also transposed and broadcast."""
    x, y = (np.random.default_rng(seed).integers(0, 2, (20, 30)).astype(dtype) for seed in (0, 1))
    flags = np.random.default_rng(2).random((20, 30)) < 0.5
    number = True if dtype is np.bool_ else 1
    pairs = [(x, y), (x, y[:1]), (x[:, :1], y), (x, y.T.copy().T)]
    pairs += [] if dtype is np.float16 else [(x, number), (number, y)]
    for left, right in pairs:
        for condition in (flags, flags[0], flags[:, :1]):
            found, is_own = _ran("where", condition, left, right)
            assert is_own
            wanted = torch.where(*(torch.tensor(one) for one in (condition, left, right)))
            assert found.dtype == dtype
            assert np.array_equal(found, wanted.numpy())
    found, is_own = _ran("masked_fill", x, flags, number)
    assert is_own == (dtype is not np.float16)
    assert np.array_equal(found, torch.tensor(x).masked_fill(torch.tensor(flags), number).numpy())
    assert found.dtype == dtype


def test_numbers_that_promote_are_numpys():
    x, flags = np.arange(6), np.arange(6) > 2
    for other in (0.5, np.float32(3).reshape(()), x.astype(np.int32)):
        assert not _ran("where", flags, x, other)[1]
    assert NATIVE["where"](flags, x, 0.5).dtype == np.float32
    assert not _ran("where", flags, 1, 2)[1]
    assert not _ran("where", flags, x > 0, 1)[1]
    assert not _ran("masked_fill", x > 0, flags, 1)[1]
