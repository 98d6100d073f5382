"""Kernels along one dimension beside PyTorch and float64."""

import itertools

import numpy as np
import pytest
import torch
from kernel_arrays import numbers as _numbers
from kernel_arrays import run
from kernel_arrays import specials as _specials
from kernel_module import on_every_path

from gt import _kernels

# outer, count, inner
SHAPES = [
    (1, 1, 1), (1, 17, 1), (3, 7, 1), (8, 16, 1), (19, 33, 1), (2, 1025, 1), (3, 40_003, 1),
    (1, 9, 5), (2, 5, 16), (3, 70, 33), (1, 259, 1030), (2, 600, 3), (40, 2, 7),
]  # fmt: skip
EPSILON = float(np.finfo(np.float32).eps)

pytestmark = on_every_path


def _run(name, *arguments, threads=1):
    """The one result of a kernel."""
    results = run(_kernels, name, *arguments, threads=threads)
    assert results is not None, name
    return results[0]


def _reduced(name, x, dtype, *numbers, threads=1):
    """By the kernel, of [outer, count, inner] over the middle dimension."""
    options = (*numbers, False) if name in {"var", "std"} else (False, *numbers)
    if name == "count_true":
        options = (False, None)
    out = _run(name, x, 1, *options, threads=threads)
    assert out.dtype == dtype
    return out


def _cumsum(x, threads=1):
    return _run("cumsum", x, 1, None, threads=threads)


def _same_bits(found, wanted):
    """Bits, but for those of what is no number."""
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    numbers = ~np.isnan(wanted)
    assert found[numbers].tobytes() == wanted[numbers].tobytes()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("numbers", [_numbers, _specials])
def test_running_sums_have_the_bits_of_pytorch(shape, numbers):
    for scale in (1, 1e30, 1e-30):
        with np.errstate(over="ignore"):
            x = numbers(*shape) * np.float32(scale)
        wanted = torch.tensor(x).cumsum(1).numpy()
        for threads in (1, 3):
            _same_bits(_cumsum(x, threads), wanted)


def test_running_sums_begin_as_pytorchs_do():
    """With zero, so that -0 becomes 0; what is no number stays, and sums may overflow."""
    rows = [
        [-0.0, -0.0], [np.inf, 1, -np.inf, 1], [3e38, 3e38, -3e38], [np.nan, 1], [1e-45] * 9
    ]  # fmt: skip
    for row in rows:
        for columns in (1, 9):
            x = np.array([row] * columns, np.float32).T[None].copy()
            _same_bits(_cumsum(x), torch.tensor(x).cumsum(1).numpy())


def _bools(*size):
    """Half of them true, or all."""
    x = np.random.default_rng(sum(size)).random(size) < 0.5
    x[size[0] // 2 :, :, size[2] // 2 :] = True
    return x


@pytest.mark.parametrize("shape", [*SHAPES, (2, 100_003, 1), (1, 700, 513), (1, 64, 1)])
def test_counts_of_bools_are_pytorchs(shape):
    x = _bools(*shape)
    for threads in (1, 3):
        wanted = torch.tensor(x).sum(1).numpy()
        assert np.array_equal(_reduced("count_true", x, np.int64, threads=threads), wanted)
        running = _cumsum(x, threads)
        assert running.dtype == np.int64
        assert np.array_equal(running, torch.tensor(x).cumsum(1).numpy())


def test_bools_of_other_bytes_are_true():
    x = np.arange(0, 1200, 5).astype(np.uint8)
    wanted = (x != 0).cumsum()
    for inner in (1, 2):
        given = x.repeat(inner).view(np.bool_).reshape(1, -1, inner)
        assert np.array_equal(_cumsum(given)[0, :, 0], wanted)
        total = _reduced("count_true", given, np.int64)
        assert set(total.reshape(-1).tolist()) == {wanted[-1]}


def _takes(name, *arguments):
    return run(_kernels, name, *arguments) is not None


def test_running_sums_that_the_kernel_does_not_take():
    x = _numbers(6, 4)
    assert _takes("cumsum", x, -1, "float32")
    assert _takes("cumsum", x > 0, 0, "int64")
    for other, dim, dtype in [
        (x[:0], 0, None), (x.T, 0, None), (x[0, 0], 0, None), (x, 2, None), (x, -3, None),
        (x, 0, "float64"), (x > 0, 0, "float32"), (x.astype(np.float64), 0, None),
        (x.astype(np.complex64), 0, None), (x, None, None), (None, 0, None), (x, "0", None),
        (x, 2**63 - 1, None), (x, -(2**63), None), (x, 2**63, None), (x, 0.0, None),
    ]:  # fmt: skip
        assert not _takes("cumsum", other, dim, dtype)
    assert not _takes("cumsum", x, 0)
    assert not _takes("cumsum", x, 0, None, None)
    assert not _takes("count_true", x, None, False, None)
    assert not _takes("count_true", x > 0, None, False, "int32")


def test_mistakes_of_a_call_are_told():
    x = _numbers(6, 4)
    for threads in (0, -1, 257):
        with pytest.raises(ValueError, match=f"cumsum: threads {threads} is not in"):
            run(_kernels, "cumsum", x, 0, None, threads=threads)
    with pytest.raises(KeyError, match="cumsun"):
        run(_kernels, "cumsun", x)

    def make(dtype, sizes):
        raise MemoryError(dtype)

    with pytest.raises(MemoryError, match="float32"):
        _kernels.run("cumsum", (x, 0, None), make)


@pytest.mark.parametrize("shape", [*SHAPES, (1, 100_003, 1)])
@pytest.mark.parametrize("numbers", [_numbers, _specials])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extremes_are_pytorchs(name, numbers, shape):
    x = numbers(*shape)
    wanted = getattr(torch, name)(torch.tensor(x), 1).numpy()
    for threads in (1, 3):
        assert np.array_equal(_reduced(name, x, np.int64, threads=threads), wanted)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_of_equal_places(name):
    """Equal numbers are zeros of both signs, infinities, and NaN, also before a larger number."""
    infinity = np.inf if name == "argmax" else -np.inf
    for pair in itertools.product([0.0, -0.0, 1.0, infinity, -infinity, np.nan, -np.nan], repeat=2):
        for places in [(0, 1), (3, 70), (69, 70), (1023, 1024), (5, 2000), (1, 40_000)]:
            x = np.full(places[1] + 3, pair[1] if np.isnan(pair[0]) else pair[0], np.float32)
            x[: places[0]] = -infinity
            x[places[0]], x[places[1]] = pair
            wanted = int(getattr(torch, name)(torch.tensor(x)))
            assert _reduced(name, x[None, :, None], np.int64)[0, 0] == wanted
            columns = np.stack([x, x[::-1]], 1)
            wanted = getattr(torch, name)(torch.tensor(columns), 0).tolist()
            assert _reduced(name, columns[None], np.int64)[0].tolist() == wanted


def _truths(*size):
    """Rows of zeros, rows without, and some of both."""
    x = _specials(*size)
    x[: size[0] // 2] = 0
    x[0, :, : size[2] // 2 + 1] = -0.0
    x[-1][x[-1] == 0] = np.nan
    return x


@pytest.mark.parametrize("shape", [*SHAPES, (2, 100_003, 1)])
@pytest.mark.parametrize("name", ["any", "all"])
def test_truth_is_pytorchs(name, shape):
    for x in (_truths(*shape), _truths(*shape) != 0, np.ones(shape, np.bool_), np.zeros(shape)):
        given = x.astype(np.float32) if x.dtype == np.float64 else x
        wanted = getattr(torch, name)(torch.tensor(given), 1).numpy()
        for threads in (1, 3):
            assert np.array_equal(_reduced(name, given, np.bool_, threads=threads), wanted)


@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("dtype", [np.float32, np.bool_])
def test_one_number_decides_truth(name, dtype):
    for count, inner in [(1, 1), (63, 1), (1024, 1), (1025, 1), (70_000, 1), (9, 5), (4, 600)]:
        for place in {0, 1, count * inner // 2, count * inner - 1} - {count * inner}:
            x = np.full((1, count, inner), name == "all", dtype)
            x.reshape(-1)[place] = name == "any"
            wanted = getattr(np, name)(x, axis=1)
            assert np.array_equal(_reduced(name, x, np.bool_), wanted), (count, inner, place)


@pytest.mark.parametrize("shape", [*SHAPES, (2, 100_003, 1)])
@pytest.mark.parametrize(("correction", "scale", "middle"), [
    (1.0, 1, 0), (0.0, 1, 1e4), (0.5, 1e-3, 1e4), (-2.0, 1e-30, 0), (0.0, 1e25, 0), (0.0, 1e-42, 0),
])  # fmt: skip
def test_spreads_are_those_of_float64(shape, correction, scale, middle):
    """Also far from zero, and of numbers whose squares float32 does not have."""
    if correction >= shape[1]:
        pytest.skip("nothing to divide by")
    x = (_numbers(*shape).astype(np.float64) * scale + middle).astype(np.float32)
    wide = torch.tensor(x).double()
    for name in ("var", "std"):
        wanted = getattr(torch, name)(wide, 1, correction=correction).float().numpy()
        found = _reduced(name, x, np.float32, correction)
        np.testing.assert_allclose(found, wanted, rtol=2 * EPSILON)
        again = _reduced(name, x, np.float32, correction, threads=3)
        assert found.tobytes() == again.tobytes()


def test_spreads_of_what_an_outlier_begins():
    for count, inner in [(70_001, 1), (70_001, 3)]:
        x = _numbers(1, count, inner)
        for first in (1e3, 1e9, 1e30):
            x[:, 0] = first
            wanted = x.astype(np.float64).std(1)
            np.testing.assert_allclose(_reduced("std", x, np.float32, 0.0), wanted, rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 5, 1), (3, 40, 1), (1, 40_000, 1), (2, 9, 7)])
def test_spreads_of_equal_numbers_and_of_what_is_none(shape):
    for value in (0.0, 3.7e-3, -1e30, 3.4e38):
        assert not _reduced("var", np.full(shape, value, np.float32), np.float32, 1.0).any()
    for special in (np.nan, np.inf, -np.inf):
        for place in (0, shape[1] - 1):
            x = _numbers(*shape)
            x[:, place] = special
            assert np.isnan(_reduced("std", x, np.float32, 1.0)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_every_instruction_set_gives_the_same_spreads(shape):
    x, found = _numbers(*shape), set()
    for name in _kernels.paths():
        _kernels.set_path(name)
        found.add(_reduced("var", x, np.float32, 0.0).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("name", ["argmax", "any", "std"])
def test_reductions_that_the_kernel_does_not_take(name):
    options = (1, False) if name == "std" else (False,)
    x = _numbers(6, 4, 3)
    for dim in (0, -1, 2, None):
        assert _takes(name, x, dim, *options)
    assert _takes(name, x, (-1, 1), *options)
    assert _takes(name, x.T, 0, *options) == (name == "std")
    for dim in (3, -4, (0, 2), (1, 1), ()):
        assert not _takes(name, x, dim, *options)
    for other in (x[:0], x[0, 0, 0], x.astype(np.float64), x.astype(np.int64)):
        assert not _takes(name, other, None, *options)


def test_spreads_with_nothing_to_divide_by_are_others():
    for correction in (4.0, 5.0, np.nan):
        assert not _takes("var", _numbers(6, 4), 1, correction, False)
