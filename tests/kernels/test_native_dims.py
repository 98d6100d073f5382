"""The native backend's rows that look at one dimension, beside PyTorch."""

import itertools

import numpy as np
import pytest
import torch
from kernel_arrays import numbers as _numbers
from kernel_arrays import specials as _specials

from gt.worker.native.kernels import NATIVE
from gt.worker.own_calls import kernels_run
from gt.worker.reference.kernels import NUMPY


def _run(row, x, *attributes, quick):
    """`quick`: by a kernel of GT's."""
    before = kernels_run()
    found = NATIVE[row](x, *attributes)
    assert (kernels_run() > before) == quick
    return found


def _same_bits(found, wanted):
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    numbers = ~np.isnan(wanted)
    assert found[numbers].tobytes() == wanted[numbers].tobytes()


def _dims(rank):
    """All, and every choice of some."""
    yield None
    for count in range(1, rank + 1):
        yield from itertools.combinations(range(-rank, 0), count)
        yield from itertools.permutations(range(rank), count)


def _are_beside(dims):
    places = sorted(dims or ())
    return all(one + 1 == other for one, other in itertools.pairwise(places))


@pytest.mark.parametrize("shape", [(5,), (3, 1), (2, 5, 7), (300, 600)])
def test_running_sums(shape):
    x, turned = _specials(*shape), _numbers(*shape[::-1]).T
    for dim in range(-len(shape), len(shape)):
        found = _run("cumsum", x, dim, None, quick=True)
        _same_bits(found, torch.tensor(x).cumsum(dim).numpy())
        found = _run("cumsum", turned, dim, None, quick=turned.flags.c_contiguous)
        np.testing.assert_allclose(found, turned.cumsum(dim, np.float64), rtol=1e-4, atol=1e-4)
    assert _run("cumsum", x, 0, "float64", quick=False).dtype == np.float64
    assert _run("cumsum", np.float32(3).reshape(()), 0, None, quick=False) == 3
    assert _run("cumsum", x[:0], 0, None, quick=False).shape == (0, *shape[1:])


@pytest.mark.parametrize("shape", [(5,), (3, 1), (2, 5, 7), (30, 600)])
def test_counts_of_bools(shape):
    x = _numbers(*shape) > 0
    for dim in range(-len(shape), len(shape)):
        found = _run("cumsum", x, dim, None, quick=True)
        _same_bits(found, torch.tensor(x).cumsum(dim).numpy())
    for dim in _dims(len(shape)):
        for keepdim in (False, True):
            wanted = torch.tensor(x).sum(dim, keepdim).numpy()
            found = _run("sum", x, dim, keepdim, None, quick=_are_beside(dim))
            assert found.dtype == np.int64
            assert np.array_equal(found, wanted)
            assert found.shape == wanted.shape
    assert _run("sum", x, None, False, "float32", quick=False).dtype == np.float32
    assert _run("sum", x[:0], None, False, None, quick=False) == 0
    assert _run("sum", x.T, None, False, None, quick=x.T.flags.c_contiguous) == x.sum()


@pytest.mark.parametrize("shape", [(5,), (3, 1), (2, 5, 7), (300, 600)])
@pytest.mark.parametrize("row", ["argmax", "argmin"])
def test_places(row, shape):
    x, turned = _specials(*shape), _numbers(*shape[::-1]).T
    for dim in (None, *range(-len(shape), len(shape))):
        for keepdim in (False, True):
            wanted = getattr(torch.tensor(x), row)(dim, keepdim).numpy()
            _same_bits(_run(row, x, dim, keepdim, quick=True), wanted)
            wanted = getattr(torch.tensor(turned.copy()), row)(dim, keepdim).numpy()
            found = _run(row, turned, dim, keepdim, quick=turned.flags.c_contiguous)
            _same_bits(found, wanted)
    assert _run(row, x.astype(np.float64), None, False, quick=False).shape == ()
    assert _run(row, np.float32(3).reshape(()), None, True, quick=False) == 0


def _truths(*shape):
    """Numbers of which most are zero, most are not, and all of one."""
    x = _specials(*shape)
    most = np.where(_numbers(*shape) > 2, x, np.float32(0))
    return [
        x,
        most,
        x != 0,
        most != 0,
        np.where(x == 0, np.float32(np.nan), x),
        np.ones(shape, np.bool_),
    ]


@pytest.mark.parametrize("shape", [(5,), (3, 1), (2, 5, 7), (30, 600), (3, 4, 5, 6)])
@pytest.mark.parametrize("row", ["any", "all"])
def test_truth(row, shape):
    for x in _truths(*shape):
        for dim in _dims(len(shape)):
            for keepdim in (False, True):
                wanted = getattr(torch.tensor(x), row)(dim, keepdim).numpy()
                _same_bits(_run(row, x, dim, keepdim, quick=_are_beside(dim)), wanted)
    turned = x.T
    quick = turned.flags.c_contiguous
    wanted = getattr(torch.tensor(turned.copy()), row)(0).numpy()
    _same_bits(_run(row, turned, (0,), False, quick=quick), wanted)
    assert _run(row, x.astype(np.int64), None, False, quick=False).dtype == np.bool_
    assert _run(row, x.astype(np.uint8), None, False, quick=False).dtype == np.uint8
    assert _run(row, x[:0], None, False, quick=False) == (row == "all")


@pytest.mark.parametrize("shape", [(5,), (3, 2), (2, 5, 7), (30, 600), (3, 4, 5, 6)])
@pytest.mark.parametrize("row", ["var", "std"])
def test_spreads(row, shape):
    """Far from zero too; over dimensions that are not beside each other as numpy has them."""
    for x in (_numbers(*shape), _numbers(*shape[::-1]).T + np.float32(1e4), _specials(*shape)):
        wide = torch.tensor(x.astype(np.float64))
        for dim, correction in itertools.product(_dims(len(shape)), (0.0, 1.0, 1.5)):
            given = (dim, correction, correction == 1)
            with np.errstate(all="ignore"):
                found = _run(row, x, *given, quick=_are_beside(dim))
                wanted = NUMPY[row](x, *given)
            if _are_beside(dim):
                exact = getattr(wide, row)(dim, correction=correction, keepdim=correction == 1)
                wanted = exact.float().numpy()
            assert (found.dtype, found.shape) == (np.float32, wanted.shape)
            np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("row", ["var", "std"])
def test_other_spreads(row):
    x = _numbers(30, 1)
    with np.errstate(all="ignore"):
        assert np.isnan(_run(row, x, (1,), 1.0, False, quick=False)).all()
    assert _run(row, x.astype(np.float64), None, 1.0, False, quick=False).dtype == np.float64
