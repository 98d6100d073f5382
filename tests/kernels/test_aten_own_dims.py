"""GT's kernels along a dimension in the helper: the bits of the Python engine."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from test_aten_rows import bits  # noqa: E402

from gt.worker.aten.trial import Trial  # noqa: E402
from gt.worker.own_calls import kernels_run  # noqa: E402
from gt.worker.pytorch import kernels  # noqa: E402

DRAWN = torch.Generator().manual_seed(5)
SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 1e-40, 3e38, -3e38]


def drawn(*size: int) -> torch.Tensor:
    return torch.randn(size, generator=DRAWN)


def special(*size: int) -> torch.Tensor:
    """Small whole numbers, so that many are equal, and some that are special."""
    x = torch.randint(-3, 4, size, generator=DRAWN).float()
    for one in SPECIAL:
        x.view(-1)[torch.randint(0, x.numel(), (1,), generator=DRAWN)] = one
    return x


# Operands that GT's kernels take: contiguous float32 with elements, of any size.
TAKEN = {
    "a few": drawn(3),
    "rows": drawn(19, 33),
    "large": drawn(513, 515),
    "three dims": drawn(4, 30, 50),
    "a dim of one": drawn(40, 1, 9),
    "special": special(40, 50),
    "one": drawn(1, 1),
    "long": special(70_001),
}
LEFT = {
    "transposed": drawn(60, 50).t(),
    "every other": drawn(40, 60)[:, ::2],
    "expanded": drawn(1, 50).expand(40, 50),
    "float64": drawn(40, 50).double(),
    "bfloat16": drawn(40, 50).bfloat16(),
    "int64": torch.arange(60).reshape(6, 10),
    "no dims": drawn(1)[0],
    "empty": drawn(0, 5),
}


def dims_of(rank: int) -> Iterator[tuple[int, ...] | None]:
    """All, and every choice of some."""
    yield None
    for count in range(1, rank + 1):
        yield from itertools.combinations(range(-rank, 0), count)
        yield from itertools.permutations(range(rank), count)


def are_beside(dims: Sequence[int] | None) -> bool:
    return all(one + 1 == other for one, other in itertools.pairwise(sorted(dims or ())))


def check(
    helper: Trial,
    row: str,
    x: torch.Tensor,
    attributes: list[object],
    *,
    takes: bool,
    in_python: bool = False,
) -> torch.Tensor:
    """The helper's result, which has Python's bits.

    Args:
        takes: A kernel of GT's runs it in the helper.
        in_python: And in the Python engine.
    """
    with torch.inference_mode():
        before = kernels_run()
        expected = kernels.TORCH[row](x, *attributes)
        assert kernels_run() - before == in_python
        before = kernels_run()
        ours = helper.run(row, [x], attributes)
        ran = kernels_run() - before
    assert ours is not None
    assert ran == takes, (row, x.shape, attributes)
    assert (ours[0].shape, ours[0].stride()) == (expected.shape, expected.stride())
    pairs = [(ours[0], expected)]
    if expected.dtype.is_floating_point:  # the sign of what is no number is nobody's
        pairs = [(one.nan_to_num(7.5), one.isnan()) for one in (ours[0], expected)]
        pairs = list(zip(*pairs, strict=True))
    for found, wanted in pairs:
        assert bits([found]) == bits([wanted])
    return ours[0]


@pytest.mark.parametrize("name", TAKEN)
def test_running_sums(aten_helper: Trial, name: str) -> None:  # noqa: F811
    x = TAKEN[name]
    for dim in range(-x.dim(), x.dim()):
        check(aten_helper, "cumsum", x, [dim, None], takes=True)
    check(aten_helper, "cumsum", x, [0, torch.float32], takes=True)
    check(aten_helper, "cumsum", x, [0, torch.float64], takes=False)


@pytest.mark.parametrize("name", TAKEN)
def test_counts_of_bools(aten_helper: Trial, name: str) -> None:  # noqa: F811
    for x in (TAKEN[name] > 0, TAKEN[name] == TAKEN[name]):
        for dim in range(-x.dim(), x.dim()):
            check(aten_helper, "cumsum", x, [dim, None], takes=True)
        check(aten_helper, "cumsum", x, [0, torch.int64], takes=True)
        check(aten_helper, "cumsum", x, [0, torch.int32], takes=False)
        for dims in dims_of(x.dim()):
            for keepdim in (False, True):
                takes = are_beside(dims)
                check(aten_helper, "sum", x, [dims, keepdim, None], takes=takes)
        check(aten_helper, "sum", x, [None, True, torch.int64], takes=True)
        check(aten_helper, "sum", x, [(0,), False, torch.float32], takes=False)


@pytest.mark.parametrize("name", LEFT)
def test_other_counts_are_pytorchs(aten_helper: Trial, name: str) -> None:  # noqa: F811
    x = LEFT[name]
    for given in (x, x > 0):
        is_whole = given.is_contiguous() and given.dtype == torch.bool and bool(x.numel())
        takes = is_whole and x.dim() > 0
        check(aten_helper, "sum", given, [None, False, None], takes=takes)
        if not (given is x and takes):
            check(aten_helper, "cumsum", given, [0, None], takes=takes)


@pytest.mark.parametrize("name", LEFT)
def test_other_running_sums_are_pytorchs(aten_helper: Trial, name: str) -> None:  # noqa: F811
    check(aten_helper, "cumsum", LEFT[name], [0, None], takes=False)


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("row", ["argmax", "argmin"])
def test_places(aten_helper: Trial, row: str, name: str) -> None:  # noqa: F811
    x = TAKEN[name]
    for dim in (None, *range(-x.dim(), x.dim())):
        for keepdim in (False, True):
            check(aten_helper, row, x, [dim, keepdim], takes=True)


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.parametrize("row", ["argmax", "argmin"])
def test_other_places_are_pytorchs(aten_helper: Trial, row: str, name: str) -> None:  # noqa: F811
    dim = 1 if name == "empty" else 0
    check(aten_helper, row, LEFT[name], [dim, True], takes=False)


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("row", ["any", "all"])
def test_truth(aten_helper: Trial, row: str, name: str) -> None:  # noqa: F811
    x = TAKEN[name]
    for given in (x, x.relu(), x > 2, x > -9e9, torch.zeros_like(x)):
        for dims in dims_of(x.dim()):
            for keepdim in (False, True):
                takes = are_beside(dims)
                check(aten_helper, row, given, [dims, keepdim], takes=takes)


@pytest.mark.parametrize("name", LEFT)
@pytest.mark.parametrize("row", ["any", "all"])
def test_other_truth_is_pytorchs(aten_helper: Trial, row: str, name: str) -> None:  # noqa: F811
    check(aten_helper, row, LEFT[name], [None, False], takes=False)
    if LEFT[name].dim():
        check(aten_helper, row, LEFT[name], [(0,), True], takes=False)


@pytest.mark.parametrize("row", ["var", "std"])
@pytest.mark.parametrize("name", [*TAKEN, "transposed", "every other", "expanded"])
def test_spreads(aten_helper: Trial, row: str, name: str) -> None:  # noqa: F811
    """By GT's kernel in both engines, beside float64; far from zero too."""
    x = (TAKEN | LEFT)[name]
    given = [x] if name in ("special", "long") else [x, x + 1e4]
    for one, dims in itertools.product(given, dims_of(x.dim())):
        count = math.prod(x.shape if dims is None else [x.shape[dim] for dim in dims])
        for correction, keepdim in [(1.0, False), (0.0, True), (0.5, False)]:
            takes = are_beside(dims) and correction < count
            if correction >= count:
                continue  # PyTorch warns
            found = check(
                aten_helper, row, one, [dims, correction, keepdim], takes=takes, in_python=takes
            )
            exact = getattr(one.double(), row)(dims, correction=correction, keepdim=keepdim)
            wanted = exact.float()
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=0, equal_nan=True)


def test_both_engines_take_the_same_dims(aten_helper: Trial) -> None:  # noqa: F811
    """csrc/table/dims.cpp says which stand beside each other, and what results."""
    draw = random.Random(9)
    for _ in range(300):
        rank = draw.randint(1, 6)
        x = drawn(*(draw.randint(1, 3) for _ in range(rank)))
        some = draw.sample(range(rank), draw.randint(1, min(rank, 3)))
        dims = tuple(one - draw.choice((0, rank)) for one in some)
        keepdim = draw.random() < 0.5
        takes = are_beside([one % rank for one in dims])
        check(aten_helper, "var", x, [dims, 0.0, keepdim], takes=takes, in_python=takes)


@pytest.mark.parametrize("row", ["var", "std"])
@pytest.mark.parametrize("name", ["float64", "bfloat16"])
def test_other_spreads_are_pytorchs(aten_helper: Trial, row: str, name: str) -> None:  # noqa: F811
    check(aten_helper, row, LEFT[name], [None, 1.0, False], takes=False)
    check(aten_helper, row, LEFT[name].float().double(), [(0,), 1.0, False], takes=False)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("row", ["var", "std"])
def test_spreads_with_nothing_to_divide_by_are_pytorchs(
    aten_helper: Trial,  # noqa: F811
    row: str,
) -> None:
    for correction in (1.0, 2.0):
        found = check(aten_helper, row, drawn(40, 1), [(1,), correction, False], takes=False)
        assert not found.isfinite().any()


@pytest.mark.parametrize("row", ["var", "std"])
def test_without_kernels_spreads_are_pytorchs(monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    monkeypatch.setenv("GT_KERNELS", "off")
    x, before = drawn(300, 200), kernels_run()
    with torch.inference_mode():
        for dims in (None, (1,), (0,)):
            found = kernels.TORCH[row](x, dims, 1.0, False)
            assert bits([found]) == bits([getattr(x, row)(dims, correction=1)])
    assert kernels_run() == before
