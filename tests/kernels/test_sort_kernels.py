"""Rows in order by GT's kernel, in the helper, and in the native backend: PyTorch's bits."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from aten_helper import aten_helper  # noqa: E402, F401  a fixture
from kernel_arrays import run  # noqa: E402

from gt import _kernels  # noqa: E402
from gt.worker.aten.trial import Trial  # noqa: E402
from gt.worker.native.kernels import NATIVE  # noqa: E402
from gt.worker.own_calls import kernels_run  # noqa: E402
from gt.worker.pytorch import kernels  # noqa: E402

DRAWN = torch.Generator().manual_seed(5)
SPECIAL = [math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-45, -1e-45, 3e38, -3e38]
DTYPES = [torch.float32, torch.int32, torch.int64]


def different(*size: int, dtype: torch.dtype) -> torch.Tensor:
    """No two of a row are equal."""
    places = torch.stack([torch.randperm(size[-1], generator=DRAWN) for _ in range(size[0])])
    places -= size[-1] // 2
    if dtype == torch.float32:
        return places.float() * 1e-3
    return places.to(dtype) * (2**40 + 1 if dtype == torch.int64 else 1000)


def few(*size: int, dtype: torch.dtype) -> torch.Tensor:
    """Many are equal; of float32 some special."""
    x = torch.randint(-3, 4, size, generator=DRAWN).to(dtype)
    if dtype == torch.float32:
        for one in SPECIAL * 3:
            x.view(-1)[torch.randint(0, x.numel(), (1,), generator=DRAWN)] = one
    else:
        limits = torch.iinfo(dtype)
        x[0, :4] = torch.tensor([limits.max, limits.min, limits.max, limits.min], dtype=dtype)
    return x


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    integers = torch.int64 if found.element_size() == 8 else torch.int32
    assert found.dtype == wanted.dtype
    assert found.stride() == wanted.stride()
    assert torch.equal(found.view(integers), wanted.view(integers))


def check(helper: Trial, x: torch.Tensor, *, descending: bool, stable: bool, calls: int) -> None:
    """The helper's order, by so many calls of a kernel of ours, is Python's."""
    for dim in (-1, x.dim() - 1):
        with torch.inference_mode():
            wanted = kernels.TORCH["sort"](x, dim, descending, stable)
            before = kernels_run()
            found = helper.run("sort", [x], [dim, descending, stable])
            assert kernels_run() - before == calls, (x.shape, x.dtype, stable)
        assert found is not None
        for one, other in zip(found, wanted, strict=True):
            same(one, other)


@pytest.mark.parametrize("size", [(8, 256), (1, 2048), (5, 300), (40, 257)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_rows(
    aten_helper: Trial,  # noqa: F811
    dtype: torch.dtype,
    size: tuple[int, int],
    descending: bool,
) -> None:
    x = different(*size, dtype=dtype)
    check(aten_helper, x, descending=descending, stable=True, calls=1)
    check(aten_helper, x, descending=descending, stable=False, calls=1)
    check(aten_helper, x[:, None], descending=descending, stable=True, calls=1)
    many = few(*size, dtype=dtype)
    check(aten_helper, many, descending=descending, stable=True, calls=1)
    check(aten_helper, many, descending=descending, stable=False, calls=1)  # of the first row
    long = few(1, 70_001, dtype=dtype)[0]
    check(aten_helper, long, descending=descending, stable=True, calls=1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_with_equal_numbers_are_pytorchs(
    aten_helper: Trial,  # noqa: F811
    dtype: torch.dtype,
) -> None:
    """Unspecified order is that of PyTorch's algorithm."""
    x = different(40, 500, dtype=dtype)
    for row in (3, 39):
        x[row] = torch.randint(0, 9, (500,), generator=DRAWN).to(dtype)
    x[20, 17] = x[20, 400]
    for descending in (False, True):
        check(aten_helper, x, descending=descending, stable=False, calls=1)
        check(aten_helper, x[:, :300].contiguous(), descending=descending, stable=True, calls=1)
    x[5:20] = 1
    check(aten_helper, x, descending=False, stable=False, calls=1)


@pytest.mark.parametrize(
    "x",
    [
        different(20, 127, dtype=torch.float32),
        different(7, 128, dtype=torch.int32),
        different(20, 255, dtype=torch.int64),
        different(20, 200, dtype=torch.float32).t(),
        different(20, 200, dtype=torch.float32).double(),
        different(20, 200, dtype=torch.float32).bfloat16(),
        torch.zeros(0, 2000),
        torch.zeros(()),
    ],
    ids=str,
)
def test_others_are_pytorchs(aten_helper: Trial, x: torch.Tensor) -> None:  # noqa: F811
    check(aten_helper, x, descending=False, stable=True, calls=0)


def test_long_rows_without_a_stated_order_are_pytorchs(aten_helper: Trial) -> None:  # noqa: F811
    x = different(2, 3000, dtype=torch.float32)
    check(aten_helper, x, descending=False, stable=False, calls=0)
    with torch.inference_mode():
        wanted = kernels.TORCH["sort"](x, 0, False, True)
        found = aten_helper.run("sort", [x], [0, False, True])
    assert found is not None
    same(found[1], wanted[1])


def check_top(
    helper: Trial,
    x: torch.Tensor,
    k: int,
    *,
    largest: bool,
    is_sorted: bool = True,
    calls: int = 1,
) -> None:
    with torch.inference_mode():
        for dim in (-1, x.dim() - 1):
            wanted = kernels.TORCH["topk"](x, k, dim, largest, is_sorted)
            before = kernels_run()
            found = helper.run("topk", [x], [k, dim, largest, is_sorted])
            assert kernels_run() - before == calls, (x.shape, k)
            assert found is not None
            for one, other in zip(found, wanted, strict=True):
                same(one, other)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(("size", "most"), [((8, 768), 12), ((3, 1001), 15), ((2, 9000), 64)])
def test_first_numbers(
    aten_helper: Trial,  # noqa: F811
    size: tuple[int, int],
    most: int,
    largest: bool,
) -> None:
    x = different(*size, dtype=torch.float32)
    for k in (1, 2, most):
        check_top(aten_helper, x, k, largest=largest)
        check_top(aten_helper, x.sort(-1).values, k, largest=largest)
        check_top(aten_helper, x.sort(-1, descending=True).values[:, None], k, largest=largest)
    check_top(aten_helper, x[0], 3, largest=largest, calls=int(size[1] >= 1024))
    x[:, ::5] = -math.inf if largest else math.inf  # many of which none is among the first
    check_top(aten_helper, x, most, largest=largest)


@pytest.mark.parametrize("largest", [False, True])
def test_first_numbers_that_are_equal_are_pytorchs(
    aten_helper: Trial,  # noqa: F811
    largest: bool,
) -> None:
    x = different(40, 900, dtype=torch.float32)
    x[3] = few(1, 900, dtype=torch.float32)[0]
    x[7, 5], x[9, 899], x[11, 450] = math.nan, -math.nan, -0.0
    for k in (1, 9, 14):
        edge = x[20].topk(k, largest=largest).values[-1]
        same_one = x.clone()
        same_one[20, 13], same_one[20, 800] = edge, edge
        check_top(aten_helper, same_one, k, largest=largest)
    check_top(aten_helper, few(40, 900, dtype=torch.float32), 9, largest=largest)
    zeros = -x.abs() if largest else x.abs()
    zeros[:, 30] = 0.0
    zeros[4, 700] = -0.0
    check_top(aten_helper, zeros, 1, largest=largest)


def test_other_first_numbers_are_pytorchs(aten_helper: Trial) -> None:  # noqa: F811
    x = different(4, 5000, dtype=torch.float32)
    for given, k, is_sorted in [
        (x, 65, True), (x, 3, False), (x[:, :767].contiguous(), 3, True), (x[:, ::2], 3, True),
        (x[:, :900].contiguous(), 15, True), (x.double(), 3, True), (x, 0, True),
    ]:  # fmt: skip
        check_top(aten_helper, given, k, largest=True, is_sorted=is_sorted, calls=0)
    with torch.inference_mode():
        assert aten_helper.run("topk", [x], [-1, -1, True, True]) is None


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (3, 2), (7, 1), (9, 257)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_native_backend(dtype: torch.dtype, size: tuple[int, int]) -> None:
    for x in (different(*size, dtype=dtype), few(*size[:1], max(4, size[1]), dtype=dtype)):
        for given in (x.numpy(), x.t().contiguous().numpy().T):
            for descending in (False, True):
                before = _kernels.calls()
                found = NATIVE["sort"](given, -1, descending, False)
                assert _kernels.calls() > before
                wanted = x.sort(dim=-1, stable=True, descending=descending)
                for one, other in zip(found, wanted, strict=True):
                    same(torch.from_numpy(one), other)


def test_other_rows_of_the_native_backend_are_numpys() -> None:
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    before = _kernels.calls()
    assert NATIVE["sort"](x, 0, True, True)[1].tolist() == [[2] * 4, [1] * 4, [0] * 4]
    assert NATIVE["sort"](x.astype(np.float64), 1, False, True)[1].tolist() == [[0, 1, 2, 3]] * 3
    assert NATIVE["sort"](x[:0], 1, False, True)[0].shape == (0, 4)
    assert _kernels.calls() == before


def test_long_rows_over_threads() -> None:
    x = torch.stack([few(1, 70_001, dtype=torch.int64)[0] for _ in range(5)])
    wanted = x.sort(dim=-1, stable=True)
    for threads in (1, 2, 3):
        values, places, _ = run(_kernels, "sort", x, True, -1, False, threads=threads) or ()
        same(torch.from_numpy(values), wanted.values)
        same(torch.from_numpy(places), wanted.indices)


def test_what_the_kernel_does_not_take() -> None:
    x = torch.zeros(3, 4)
    assert run(_kernels, "sort", x, True, -1, False) is not None
    for other in (x[:0], x.t(), x.double(), x.bool(), x[0, 0]):
        assert run(_kernels, "sort", other, True, -1, False) is None
    for dim in (0, 2, -2, None):
        assert run(_kernels, "sort", x, True, dim, False) is None
    for k in (0, -1, 5):
        assert run(_kernels, "topk", x, k, -1, True, True) is None
