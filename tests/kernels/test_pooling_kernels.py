"""The kernel of maximum pools gives PyTorch's values and places, bit for bit."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gt  # noqa: E402
from gt.worker.pytorch import own as torch_own  # noqa: E402  torch may be absent
from gt.worker.pytorch import own_kernels, pooling  # noqa: E402

kernels = pytest.importorskip("gt._kernels")

SIZES = [(2, 3, 1, 1), (3, 7, 5), (1, 2, 33, 28), (65, 2, 14, 9)]
# kernel_size, stride, padding, dilation
WINDOWS: list[tuple[Any, ...]] = [
    (2, 2, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), ((1, 3), (3, 1), (0, 1), 1), (2, 3, 1, 2),
    (3, 4, 1, 3), ((2, 1), (), 0, 1),
]  # fmt: skip


def _numbers(size: tuple[int, ...]) -> Any:
    """With equal values, NaN and infinities."""
    values = np.random.Generator(np.random.PCG64(1)).integers(-9, 9, size).astype(np.float32)
    values[values == 8] = math.nan
    values[values < -6] = -math.inf
    return torch.from_numpy(values)


def _refusal(function: Any, *args: object) -> Any:
    try:
        return function(*args)
    except RuntimeError as error:
        return str(error).splitlines()[0]


@pytest.mark.parametrize("is_ceil", [False, True])
@pytest.mark.parametrize(("size", "window"), list(itertools.product(SIZES, WINDOWS)))
def test_values_and_places(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, ...], window: tuple[Any, ...], is_ceil: bool
) -> None:
    x, calls = _numbers(size), []
    expected = _refusal(torch.ops.aten.max_pool2d_with_indices, x, *window, is_ceil)

    def counted(out: Any, indices: Any, *rest: Any) -> None:
        calls.append(out.shape)
        kernels.max_pool(out.fill_(7), indices.fill_(-7), *rest)

    counting = type("", (), {"max_pool": staticmethod(counted)})
    monkeypatch.setattr(own_kernels, "module", lambda: counting)
    got = _refusal(pooling.max_pool2d_with_indices, x, *window, is_ceil)
    if isinstance(expected, str):
        assert got == expected
        assert not calls
        return
    assert calls == [expected[0].shape]
    torch.testing.assert_close(got[0], expected[0], rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got[1], expected[1])


def test_threads_change_nothing() -> None:
    x = _numbers((37, 3, 40, 40))
    made = []
    for threads in (1, 3):
        out = torch.full((37, 3, 20, 20), 7.0), torch.full((37, 3, 20, 20), -7)
        kernels.max_pool(*out, x, (2, 2), (2, 2), (0, 0), (1, 1), threads)
        made.append(out)
    torch.testing.assert_close(made[0], made[1], rtol=0, atol=0, equal_nan=True)


def test_what_the_kernel_does_not_take() -> None:
    x = _numbers((2, 3, 8, 8))
    nchw = x.to(memory_format=torch.channels_last)
    for other in (x.double(), x.bfloat16(), x.to("meta"), nchw, x[:0], x.clone().requires_grad_()):
        assert not pooling._takes(other)
        got = pooling.max_pool2d_with_indices(other, 2)
        expected = torch.ops.aten.max_pool2d_with_indices(other, 2)
        for one, two in zip(got, expected, strict=True):
            assert one.stride() == two.stride()
            if not one.is_meta:
                torch.testing.assert_close(one, two, rtol=0, atol=0, equal_nan=True)


def test_errors_of_arguments() -> None:
    x, out, places = torch.zeros(2, 4, 4), torch.zeros(2, 2, 2), torch.zeros(2, 2, 2).long()
    whole = ((2, 2), (2, 2), (0, 0), (1, 1))
    with pytest.raises(TypeError, match="input and out must be float32, indices int64"):
        kernels.max_pool(out, places, x.double(), *whole)
    with pytest.raises(ValueError, match=r"input \[2, 4, 4\], out \[2, 2, 2\]"):
        kernels.max_pool(out, places[:1], x, *whole)
    with pytest.raises(ValueError, match="2 windows of 2, stride 5, padding 0, dilation 1 do not"):
        kernels.max_pool(out, places, x, (2, 2), (5, 2), (0, 0), (1, 1))
    with pytest.raises(ValueError, match="threads 0 is not in"):
        kernels.max_pool(out, places, x, *whole, 0)


def test_a_training_step() -> None:
    """Through the client: value and gradient are PyTorch's."""
    made = []
    for library in (torch, gt):
        x = library.tensor(_numbers((2, 3, 9, 8)).nan_to_num(0, 0, -9).numpy(), requires_grad=True)
        y = library.nn.functional.max_pool2d(x, 3, 2, 1)
        (y * y).sum().backward()
        made.append([np.asarray(y.detach()), np.asarray(x.grad)])
    for one, two in zip(*made, strict=True):
        np.testing.assert_array_equal(one, two)


BESIDE = [
    ("max_pool1d", (1, 1, 1), (2, 1, 1, 2)),
    ("max_pool2d", (1, 1, 1, 7), ((3, 2), 3, 1, 2, True)),
    ("max_pool3d", (1, 1, 1, 1, 7), ((1, 3, 2), 3, (0, 1, 1), 2, True)),
]


@pytest.mark.parametrize(("name", "size", "window"), BESIDE)
def test_a_window_without_a_pixel_has_no_gradient(
    name: str, size: tuple[int, ...], window: tuple[Any, ...]
) -> None:
    """PyTorch's backward kernel writes that beside its memory, and the process ends."""
    values = [getattr(m.nn.functional, name)(m.ones(size), *window).tolist() for m in (gt, torch)]
    assert values[0] == values[1]
    assert np.isneginf(values[0]).any()
    with pytest.raises(RuntimeError, match="no gradient of a window that has no pixel"):
        getattr(gt.nn.functional, name)(gt.ones(size, requires_grad=True), *window)
    x = torch.ones((1, 1, 1, 7))
    with pytest.raises(RuntimeError, match="no gradient of a window that has no pixel"):
        torch_own.BACKWARD["max_pool2d_with_indices_backward"](
            x, x, (3, 2), (3, 3), (1, 1), (2, 2), True, torch.zeros(1, 1, 1, 3).long()
        )


def test_a_dilated_window_with_a_pixel_has_its_gradient() -> None:
    slopes = []
    for m in (gt, torch):
        x = m.arange(14.0).view(1, 1, 2, 7).requires_grad_()
        m.nn.functional.max_pool2d(x, (3, 2), 2, 1, 2, True).sum().backward()
        slopes.append(x.grad.tolist())
    assert slopes[0] == slopes[1]
