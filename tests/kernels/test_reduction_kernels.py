"""Reductions of arrays of float32, and the native backend's rows of them, beside float64."""

import numpy as np
import pytest
import torch
from kernel_arrays import numbers as _numbers
from kernel_arrays import run
from kernel_module import on_every_path

from gt import _kernels
from gt.worker.native.kernels import NATIVE

# outer, count, inner
SHAPES = [
    (1, 1, 1), (3, 7, 1), (5, 16, 1), (2, 17, 1), (4, 63, 1), (2, 64, 1), (3, 257, 1), (1, 5003, 1),
    (1, 9, 5), (2, 4, 16), (3, 7, 33), (1, 259, 1030), (2, 600, 3),
]  # fmt: skip
TORCH = {"sum": torch.sum, "amax": torch.amax, "amin": torch.amin}
EPSILON = float(np.finfo(np.float32).eps)

pytestmark = on_every_path


def _run(name, x, dim=1, keepdim=False):
    results = run(_kernels, name, x, dim, keepdim, *((None,) if name in ("sum", "mean") else ()))
    return None if results is None else results[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", TORCH)
def test_reductions_are_those_of_float64(name, shape):
    x = _numbers(*shape)
    wanted = TORCH[name](torch.tensor(x, dtype=torch.float64), 1)
    sizes = np.abs(x).sum(1) if name == "sum" else 0
    assert np.all(np.abs(_run(name, x) - wanted.numpy()) <= 4 * EPSILON * sizes)


@pytest.mark.parametrize("shape", [(1, 1_000_003, 1), (1, 200_003, 3)])
def test_long_sums_keep_their_digits(shape):
    x = np.abs(_numbers(*shape)) + 1
    np.testing.assert_allclose(_run("sum", x), x.sum(1, dtype=np.float64), rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("special", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", TORCH)
def test_infinities_and_what_is_no_number(name, special, shape):
    random = np.random.default_rng(5)
    for _ in range(8):
        x = _numbers(*shape)
        x[tuple(random.integers(0, shape))] = special
        x[tuple(random.integers(0, shape))] = -special
        np.testing.assert_allclose(
            _run(name, x), TORCH[name](torch.tensor(x), 1), rtol=1e-5, atol=1e-4
        )


@pytest.mark.parametrize("name", [*TORCH, "mean"])
def test_operands_that_do_not_fit_are_not_taken(name):
    x = _numbers(6, 4)
    for wrong in (x.T, x[:0], x.astype(np.float64), x[:, 0], x[0, 0].reshape(()), 2.0):
        assert _run(name, wrong, None) is None
    assert _run(name, x, 2) is None
    assert _run(name, x, (0, -3)) is None
    assert (
        run(_kernels, name, x, 0, False, *(("float64",) if name in ("sum", "mean") else (1,)))
        is None
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_every_instruction_set_gives_the_same_bits(shape):
    x = _numbers(*shape)
    sums = set()
    for name in _kernels.paths():
        _kernels.set_path(name)
        sums.add(_run("sum", x).tobytes())
    assert len(sums) == 1


@pytest.mark.parametrize(
    "dim", [None, (0,), (1,), (2,), (-1,), (1, 2), (0, 1), (2, 0), (-1, 1), (0, 1, 2)]
)
@pytest.mark.parametrize("keepdim", [False, True])
def test_rows_of_the_native_backend(dim, keepdim):
    for x in (_numbers(3, 5, 7), _numbers(7, 5, 3).T):
        for name in ("sum", "mean", "amax", "amin"):
            extra = (None,) if name in ("sum", "mean") else ()
            found = NATIVE[name](x, dim, keepdim, *extra)
            wanted = getattr(torch, name)(
                torch.tensor(x.copy()), tuple(range(3)) if dim is None else dim, keepdim
            )
            assert (found.shape, found.dtype) == (tuple(wanted.shape), np.float32)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
