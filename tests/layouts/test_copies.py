"""Copies of a value on several workers, and what is computed of them, are alike to the last bit.

Kernels round by operands' strides: what is a view on its holder must be none there once
others have copies.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from spread_session import workers

import gt
from gt import Layout

LINE = gt.DeviceMesh(3)


@pytest.fixture(scope="module", params=["numpy", "pytorch"], autouse=True)
def three_workers(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GT_BACKEND", request.param)
        with workers(len(LINE.ranks)):
            yield


def copied(x: gt.Tensor) -> gt.Tensor:
    return gt.distribute(x, Layout(LINE, tuple(x.shape)))


def alike(x: gt.Tensor) -> None:
    """It has copies on all workers, with the same bits."""
    assert x.layout == Layout(LINE, tuple(x.shape))
    first, *others = (x.to_local(at).numpy() for at in range(LINE.size()))
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("asked", [True, False], ids=["distributed", "used with what is"])
def test_products_of_a_transposed_tensor(asked: bool) -> None:
    for seed in range(30):
        draw = np.random.Generator(np.random.PCG64(seed))
        n, m, p = draw.integers(16, 40, 3)
        turned = gt.tensor(draw.standard_normal((n, m))).t()
        factor = copied(gt.tensor(draw.standard_normal((n, p))))
        alike((copied(turned) if asked else turned) @ factor)


@pytest.mark.parametrize("asked", [True, False], ids=["distributed", "used with what is"])
def test_products_of_a_slice_that_begins_anywhere(asked: bool) -> None:
    """Kernels round by their operands' addresses, too."""
    for seed in range(30):
        draw = np.random.Generator(np.random.PCG64(seed))
        n, m, p = 2 * draw.integers(8, 40, 3) + 1
        sliced = gt.tensor(draw.standard_normal((n + 1, m)).astype("float32"))[1:]
        factor = copied(gt.tensor(draw.standard_normal((m, p)).astype("float32")))
        alike((copied(sliced) if asked else sliced) @ factor)


@pytest.mark.parametrize("asked", [True, False], ids=["distributed", "used with what is"])
def test_products_of_what_two_of_three_hold(asked: bool) -> None:
    two = gt.DeviceMesh(2)
    for seed in range(30):
        draw = np.random.Generator(np.random.PCG64(seed))
        n, m, p = draw.integers(16, 40, 3)
        start = gt.distribute(gt.tensor(draw.standard_normal((n, m))), Layout(two, (n, m)))
        turned = start.t()
        factor = copied(gt.tensor(draw.standard_normal((n, p))))
        alike((copied(turned) if asked else turned) @ factor)
