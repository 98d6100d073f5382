"""Choices, comparisons and casts of many numbers by our own loops have every bit of ATen's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from test_aten_rows import bits  # noqa: E402
from test_kernels import _run  # noqa: E402

from gt import _kernels  # noqa: E402
from gt.worker.aten.trial import Trial  # noqa: E402
from gt.worker.own_calls import kernels_run  # noqa: E402
from gt.worker.pytorch import kernels  # noqa: E402

DRAWN = torch.Generator().manual_seed(5)
EDGES = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, 3e38, 1.5]
# The result's, of which several blocks of the loops, parts of one, and rows of few elements.
SIZES = [(2100,), (5000,), (3, 7, 401), (2, 40000), (900, 3), (4, 8192)]


def drawn(*size: int) -> torch.Tensor:
    made = torch.randn(size, generator=DRAWN)
    made.view(-1)[: len(EDGES)] = torch.tensor(EDGES)[: made.numel()]
    return made


def mask(*size: int) -> torch.Tensor:
    return torch.rand(size, generator=DRAWN) < 0.5


def whole(*size: int) -> torch.Tensor:
    return torch.randint(-(2**62), 2**62, size, generator=DRAWN)


def repeated(make: object, size: tuple[int, ...]) -> list[torch.Tensor]:
    """Operands of the size, of one row, of one number a row, and of one number (1-d and 0-d)."""
    assert callable(make)
    forms = [make(*size), make(size[-1]), make(1)]
    return [*forms, make(*size[:-1], 1)] if len(size) > 1 else forms


def check(
    trial: Trial,
    row: str,
    operands: list[object],
    attributes: tuple[object, ...] = (),
    *,
    over: bool = False,
    own: int = 1,
) -> None:
    """By our loops, as `own` calls of them, what Python's kernel makes."""
    expected = _run(kernels.TORCH, row, list(operands), list(attributes))[0]
    before = kernels_run()
    if over:
        assert isinstance(operands[0], torch.Tensor)
        operands[0] = operands[0].clone()
    actual = trial.run(row, operands, list(attributes), int(over))
    assert actual is not None, (row, operands)
    assert kernels_run() - before == own, (row, operands)
    if over:
        assert isinstance(operands[0], torch.Tensor)
        assert actual[0].data_ptr() == operands[0].data_ptr()
    assert torch.equal(actual[0].isnan(), expected.isnan())
    assert bits((actual[0].nan_to_num(0.5),)) == bits((expected.nan_to_num(0.5),))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_choices(aten_helper: Trial, size: tuple[int, ...]) -> None:  # noqa: F811
    x, y, condition = drawn(*size), drawn(*size), mask(*size)
    numbers = [0, 0.3, -math.inf, math.nan]
    with torch.inference_mode():
        for other in (*repeated(drawn, size), *numbers):
            check(aten_helper, "where", [condition, x, other])
            check(aten_helper, "where", [condition, other, x])
            if not isinstance(other, torch.Tensor) or other.numel() == 1:
                value = other if not isinstance(other, torch.Tensor) else other.reshape(())
                check(aten_helper, "masked_fill", [x, condition, value])
                check(aten_helper, "masked_fill", [x, condition, value], over=True)
        for some in repeated(mask, size):
            check(aten_helper, "where", [some, x, y])
            check(aten_helper, "masked_fill", [x, some, 2])
            check(aten_helper, "masked_fill", [x, some, 2], over=True)
        # Two that are repeated along a condition.
        check(aten_helper, "where", [condition, drawn(1), drawn(size[-1])])
        check(aten_helper, "masked_fill", [drawn(size[-1]), condition, 0.5])


COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_comparisons(aten_helper: Trial, size: tuple[int, ...]) -> None:  # noqa: F811
    x = drawn(*size)
    others = [*repeated(drawn, size), x, 0, -0.0, 0.3, math.nan, 1e300, 2**60 + 2**36 + 1]
    with torch.inference_mode():
        for row, other in itertools.product(COMPARISONS, others):
            check(aten_helper, row, [x, other])
            if isinstance(other, torch.Tensor):
                check(aten_helper, row, [other, x])


@pytest.fixture(params=_kernels.paths())
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Once for each instruction set of this machine."""
    _kernels.set_path(request.param)
    yield request.param
    _kernels.set_path("auto")


@pytest.mark.parametrize("size", [(1024,), (1091,), (3, 7, 401), (70_001,), (1, 1, 2053)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_comparisons_of_integers(
    aten_helper: Trial,  # noqa: F811
    path: str,
    dtype: torch.dtype,
    size: tuple[int, ...],
) -> None:
    """Integers with few different values, and the largest ones, which float32 would merge."""
    assert path in _kernels.paths()
    limits = torch.iinfo(dtype)
    edges = [limits.min, limits.max, limits.max - 1, 0, -1]
    x, y = (torch.randint(-2, 3, size, generator=DRAWN, dtype=dtype) for _ in range(2))
    x.view(-1)[-len(edges) :] = torch.tensor(edges, dtype=dtype)
    y.view(-1)[-len(edges) :] = torch.tensor(edges[::-1], dtype=dtype)
    ones = [torch.tensor(1, dtype=dtype), torch.tensor([limits.max], dtype=dtype)]
    parts = [x.view(-1)[1:], y.view(-1)[1:]]  # not aligned
    with torch.inference_mode():
        for row, other in itertools.product(COMPARISONS, [y, x, *ones, *edges]):
            check(aten_helper, row, [x, other])
        for row in COMPARISONS if parts[0].numel() >= 1024 else ():
            check(aten_helper, row, parts)


def test_many_integers_over_threads(aten_helper: Trial) -> None:  # noqa: F811
    x, y = (torch.randint(-2, 3, (300_001,), generator=DRAWN) for _ in range(2))
    with torch.inference_mode():
        for row, other in itertools.product(("eq", "le"), (y, 1)):
            check(aten_helper, row, [x, other])
        check(aten_helper, "where", [x > 0, x, y])


CHOSEN = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.bfloat16, torch.float16, torch.float64),
]


def numbers_of(dtype: torch.dtype) -> list[float]:
    """Those that are chosen by our loops too."""
    if dtype == torch.bool:
        return [True, False]
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return [] if dtype in (torch.int8, torch.int16) else [limits.min, limits.max, 3]
    return [0, -0.0, 0.1, 1e-9, -math.inf, math.nan, -torch.finfo(dtype).max, 2**15 + 1]


@pytest.mark.parametrize("size", [(1024,), (2100,), (3, 7, 401), (2, 20_001)], ids=str)
@pytest.mark.parametrize("dtype", CHOSEN, ids=str)
def test_choices_of_other_dtypes(
    aten_helper: Trial,  # noqa: F811
    dtype: torch.dtype,
    size: tuple[int, ...],
) -> None:
    def make(*some: int) -> torch.Tensor:
        return (drawn(*some) * 9 if dtype.is_floating_point else whole(*some)).to(dtype)

    x, y, condition = make(*size), make(*size), mask(*size)
    one, alone = make(1)[0], make(1)
    with torch.inference_mode():
        for other in (y, one, alone, *numbers_of(dtype)):
            check(aten_helper, "where", [condition, x, other])
            check(aten_helper, "where", [condition, other, x])
            if other is not y and other is not alone:
                check(aten_helper, "masked_fill", [x, condition, other])
                check(aten_helper, "masked_fill", [x, condition, other], over=True)
        check(aten_helper, "where", [condition, one, alone])
        if len(size) > 1:  # bools that are repeated
            check(aten_helper, "where", [mask(size[-1]), x, y])
            check(aten_helper, "masked_fill", [x, mask(1, *size[1:]), one], over=True)


def test_a_fill_by_a_part_of_what_is_filled(aten_helper: Trial) -> None:  # noqa: F811
    x = whole(2, 40_001)
    expected = x.masked_fill(x > 0, int(x[1, 7]))
    with torch.inference_mode():
        made = aten_helper.run("masked_fill", [x, x > 0, x[1, 7]], [], 1)
    assert made is not None
    assert torch.equal(made[0], expected)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_what_is_a_number_and_casts_and_masks(
    aten_helper: Trial,  # noqa: F811
    size: tuple[int, ...],
) -> None:
    x = drawn(*size)
    with torch.inference_mode():
        for row in ("isnan", "isinf", "isfinite"):
            check(aten_helper, row, [x])
        for one in (mask(*size), whole(*size), whole(*size).int()):
            check(aten_helper, "cast", [one], (torch.float32,))
        for row, some in itertools.product(("add", "mul", "div"), repeated(mask, size)):
            check(aten_helper, row, [x, some])
            check(aten_helper, row, [some, x])
        for row in ("add", "mul"):
            check(aten_helper, row, [x, mask(*size)], over=True)


X = drawn(40, 50)


@pytest.mark.parametrize(
    ("row", "operands"),
    [
        ("where", [mask(40, 50), X, X.double()]),
        ("where", [mask(40, 50), X.t().contiguous().t(), X]),
        ("where", [mask(30, 40, 50), X[:, :1], X[:1]]),
        ("where", [mask(40, 50), X.half(), X.bfloat16()]),
        ("where", [mask(40, 50), whole(40, 50), 0.5]),
        ("where", [mask(40, 50), whole(40, 50), True]),
        ("where", [mask(40, 50), mask(40, 50), 1]),
        ("where", [mask(40, 50), X.half(), 1e6]),
        ("where", [mask(40, 50), X.double(), drawn(50).double()]),
        ("where", [mask(40, 1), whole(40, 50), whole(40, 50)]),
        ("where", [mask(400, 6)[:, 0], whole(50, 400), whole(50, 400)]),
        ("where", [mask(7), whole(300, 7), whole(300, 7)]),
        ("where", [mask(40, 50), whole(50, 40).t(), 0]),
        ("where", [mask(2, 1000), X.to(torch.complex64).view(2, 1000), 0.0]),
        ("masked_fill", [whole(40, 50).short(), mask(40, 50), 0]),
        ("masked_fill", [whole(40, 50), mask(40, 50), 0.5]),
        ("masked_fill", [X.bfloat16(), mask(40, 50), torch.tensor(0.5)]),
        ("gt", [X, X.double()]),
        ("eq", [whole(40, 50), whole(40, 50).int()]),
        ("eq", [whole(40, 50), 0.5]),
        ("eq", [whole(40, 50), whole(50)]),
        ("eq", [whole(40, 50), True]),
        ("le", [whole(60, 50).t(), whole(50, 60)]),
        ("lt", [whole(40, 50).int(), -(2**31) - 1]),
        ("lt", [whole(1, 1)[0], whole(40, 50)]),
        ("gt", [whole(2000), whole(1, 1)]),
        ("ge", [whole(40, 50).short(), 3]),
        ("eq", [mask(40, 50), True]),
        ("lt", [X[:, ::2], 0.0]),
        ("isnan", [X.double()]),
        ("isfinite", [X.half()]),
        ("cast", [X.double()]),
        ("cast", [whole(10, 10)]),
        ("add", [X, X]),
        ("mul", [mask(40, 50), mask(40, 50)]),
        ("where", [mask(8), drawn(8), 0.0]),
    ],
    ids=str,
)
def test_others_are_for_aten(aten_helper: Trial, row: str, operands: list[object]) -> None:  # noqa: F811
    with torch.inference_mode():
        check(aten_helper, row, operands, (torch.float32,) if row == "cast" else (), own=0)


def test_what_aten_refuses_is_refused(aten_helper: Trial) -> None:  # noqa: F811
    """A number beyond float32: the program fails, and Python's kernel says why."""
    with torch.inference_mode():
        assert aten_helper.run("masked_fill", [X, mask(40, 50), 1e300], []) is None
        with pytest.raises(RuntimeError, match="overflow"):
            _run(kernels.TORCH, "masked_fill", [X, mask(40, 50), 1e300], [])
        for x, value in [
            (X.half(), 1e5), (whole(40, 50), whole(1)), (whole(40, 50).int(), 2**31)
        ]:  # fmt: skip
            assert aten_helper.run("masked_fill", [x, mask(40, 50), value], []) is None
            assert aten_helper.run("masked_fill", [x, mask(40, 50), value], [], 1) is None
