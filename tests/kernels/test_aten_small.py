"""Loops for a few numbers (gt/worker/aten/small.cpp) have every bit of ATen's operators."""

from __future__ import annotations

import itertools
import math

import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from test_aten_rows import bits  # noqa: E402
from test_kernels import _run  # noqa: E402

from gt.worker.aten.trial import Trial  # noqa: E402
from gt.worker.pytorch import kernels  # noqa: E402

BINARY = ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge")
UNARY = ("neg", "abs", "square", "reciprocal", "rsqrt", "relu")
EDGES = [0.0, -0.0, 1.5, -2.5, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 3e38, 1 / 3, -7.0]
NUMBERS = [0, 3, -1, 2, 0.5, -0.5, 0.1, -0.0, 1e300, math.inf, math.nan, 2**53 + 1]
# The longest that a loop takes, and one more.
LENGTHS = (1, 2, 7, 2048, 2049)


def edges(dtype: torch.dtype, turned: int = 0) -> torch.Tensor:
    return torch.tensor(EDGES[turned:] + EDGES[:turned], dtype=dtype)


def pairs(dtype: torch.dtype) -> list[tuple[object, object]]:
    """Operands of each shape and layout that a loop takes or has to leave to ATen."""
    x = edges(dtype)
    grid = x.reshape(3, 4)
    other = torch.float64 if dtype == torch.float32 else torch.float32
    given: list[tuple[object, object]] = [(x, edges(dtype, turn)) for turn in range(len(EDGES))]
    given += [(x, x), (grid, grid), (grid.t(), grid.t()), (grid, grid.t().contiguous().t())]
    given += [(grid, grid[0]), (grid[:, :1], grid), (x[::2], x[1::2]), (x[:0], x[:0])]
    given += [(x, x[2]), (x[2], x), (x[2], x[3]), (grid[:1], x[5]), (x[:4].reshape(4, 1), 2.0)]
    given += [(x, x.to(other)), (x, x[2].to(other)), (x[2], x.to(other)), (x, x.nan_to_num().int())]
    given += [(x[:4].reshape(1, 4).t(), x[:4].reshape(1, 4).t())]  # strides of one element
    if dtype in (torch.float32, torch.float64):  # the imaginary part's bit of the sign
        given += [(torch.view_as_complex(x.view(6, 2)).conj().imag.contiguous(), x[:6])]
        given += [(torch.view_as_complex(x.view(6, 2)).conj()[:1].imag, x[:1])]
    for number in NUMBERS:
        given += [(x, number), (number, x), (x[4], number), (number, grid)]
    for length in LENGTHS:
        long = torch.linspace(-3, 5, length, dtype=dtype)
        given += [(long, long.flip(0)), (long, 0.3)]
    return given


def same(actual: torch.Tensor, expected: torch.Tensor, *, is_new: bool = True) -> bool:
    """Every bit, and a new result's strides; but for sign and payload of what is no number: which
    operand's it is, the compiler of ATen has chosen."""
    (ours,), (its,) = bits((actual.nan_to_num(0.5),)), bits((expected.nan_to_num(0.5),))
    is_equal = ours == its if is_new else ours[:3] == its[:3]
    return is_equal and torch.equal(actual.isnan(), expected.isnan())


def kernel(row: str, *operands: object) -> torch.Tensor:
    """Result of Python's kernel."""
    return _run(kernels.TORCH, row, list(operands), [])[0]


def over(one: object) -> object:
    return one.clone() if isinstance(one, torch.Tensor) else one


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("row", BINARY)
def test_two_operands(row: str, dtype: torch.dtype, aten_helper: Trial) -> None:  # noqa: F811
    ran = 0
    with torch.inference_mode():
        given = pairs(dtype) if dtype.is_floating_point else pairs_of_integers(dtype)
        for lhs, rhs in given:
            actual = aten_helper.run(row, [lhs, rhs], [])
            if actual is not None:
                ran += 1
                expected = kernel(row, lhs, rhs)
                assert same(actual[0], expected), (lhs, rhs)
    assert ran >= len(given) // 2


def pairs_of_integers(dtype: torch.dtype) -> list[tuple[object, object]]:
    x = torch.tensor([3, -2, 7, 2**62], dtype=dtype)
    return [(x, x), (x, 2), (2, x), (x, 0.5), (x[0], x)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", ["add", "sub", "mul", "div"])
def test_two_operands_over_the_first(
    row: str,
    dtype: torch.dtype,
    aten_helper: Trial,  # noqa: F811
) -> None:
    with torch.inference_mode():
        for lhs, rhs in pairs(dtype):
            fits = isinstance(lhs, torch.Tensor) and kernel(row, lhs, rhs).shape == lhs.shape
            if not fits or kernel(row, lhs, rhs).dtype != lhs.dtype:
                continue
            expected = kernel(row, lhs, rhs)
            written = over(lhs)
            actual = aten_helper.run(row, [written, rhs], [], 1)
            assert actual is not None
            assert actual[0].data_ptr() == written.data_ptr()
            assert same(actual[0], expected, is_new=False), (lhs, rhs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", UNARY)
def test_one_operand(row: str, dtype: torch.dtype, aten_helper: Trial) -> None:  # noqa: F811
    with torch.inference_mode():
        for one, _ in pairs(dtype):
            if not isinstance(one, torch.Tensor):
                continue
            expected = kernel(row, one)
            actual = aten_helper.run(row, [one], [])
            assert actual is not None
            assert same(actual[0], expected), one
            written = one.clone()
            if aten_helper.run(row, [written], [], 1) is not None:
                assert same(written, expected, is_new=False), one


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("power", [2, 2.0, 0.5, -0.5, -1, 3, -2, 0, math.nan])
def test_powers(power: float, dtype: torch.dtype, aten_helper: Trial) -> None:  # noqa: F811
    with torch.inference_mode():
        for one, _ in pairs(dtype):
            if not isinstance(one, torch.Tensor):
                continue
            actual = aten_helper.run("pow", [one, power], [])
            assert actual is not None
            assert same(actual[0], kernel("pow", one, power)), one


def test_the_slope_of_relu(aten_helper: Trial) -> None:  # noqa: F811
    with torch.inference_mode():
        for turn, dtype in itertools.product(range(len(EDGES)), (torch.float32, torch.float64)):
            grad, out = edges(dtype), edges(dtype, turn)
            actual = aten_helper.run("relu_backward", [grad, out], [])
            expected = torch.ops.aten.threshold_backward(grad, out, 0)
            assert actual is not None
            assert bits(actual) == bits((expected,)), turn


def test_a_result_is_new(aten_helper: Trial) -> None:  # noqa: F811
    """Nothing is written over that was not given for it, nor is an operand the result."""
    with torch.inference_mode():
        x = edges(torch.float32)
        before = x.clone()
        for row in BINARY:
            actual = aten_helper.run(row, [x, 2.0], [])
            assert actual is not None
            assert actual[0].data_ptr() != x.data_ptr()
            assert bits((x,)) == bits((before,))
