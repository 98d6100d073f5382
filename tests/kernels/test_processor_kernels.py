"""Sizes from which kernels pay, by the processor's family: they differ where they were measured."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from kernel_module import load_kernels

kernels = load_kernels()


@pytest.fixture(autouse=True)
def _this_machine() -> Iterator[None]:
    yield
    kernels.set_processor("auto")


def takes(side: int, *, has_mkl: bool, takes_all: bool = False) -> bool:
    """True if the kernel takes a product of matrices of this size."""
    x = np.ones((side, side), np.float32)
    by_weight = kernels.run("linear", (x, x, None, None, None), None, 1, 1, takes_all, has_mkl)
    results = kernels.run("matmul", (x, x, None, None), None, 1, 1, takes_all, has_mkl)
    assert (results is None) == (by_weight is None)
    return results is not None


@pytest.mark.parametrize("has_mkl", [False, True])
def test_products_from_64_on(has_mkl: bool) -> None:
    kernels.set_processor("other")
    assert [side for side in (32, 63, 64, 255, 256) if takes(side, has_mkl=has_mkl)] == [
        64,
        255,
        256,
    ]


def test_mkl_multiplies_large_matrices_on_its_maker_s_processors() -> None:
    kernels.set_processor("intel_avx512")
    assert [side for side in (63, 64, 255, 256) if takes(side, has_mkl=True)] == [64, 255]
    assert takes(256, has_mkl=False)
    assert takes(256, has_mkl=True, takes_all=True)


def test_unknown_families_are_refused() -> None:
    with pytest.raises(ValueError, match="'amd' is none of auto, other, intel_avx512"):
        kernels.set_processor("amd")
