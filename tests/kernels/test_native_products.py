"""Products of a worker without PyTorch: GT's kernel from a size on, numpy below; both are right."""

import numpy as np
import pytest

from gt.worker.native import reductions
from gt.worker.own_calls import kernels_run

RANDOM = np.random.default_rng(5)


def drawn(*size, dtype=np.float32):
    return RANDOM.standard_normal(size).astype(dtype)


# The left operand, the weight of `linear`, and whether GT's kernel multiplies them.
OPERANDS = {
    "matrices": (drawn(100, 80), drawn(70, 80), True),
    "a batch": (drawn(3, 40, 80), drawn(70, 80), True),
    "columns": (drawn(80, 100).T, drawn(80, 70).T, True),
    "every other": (drawn(200, 80)[::2], drawn(70, 160)[:, ::2], True),
    "no rows": (drawn(0, 80), drawn(70, 80), False),
    "a small one": (drawn(20, 80), drawn(70, 80), False),
    "a vector": (drawn(80), drawn(7000, 80), False),
    "float64": (drawn(100, 80, dtype=np.float64), drawn(70, 80, dtype=np.float64), False),
}


@pytest.mark.parametrize("bias", ["none", "whole", "every other", "one", "a number"])
@pytest.mark.parametrize("name", OPERANDS)
def test_linear_is_right(name, bias):
    left, weight, is_own = OPERANDS[name]
    columns = len(weight)
    added = {
        "none": None,
        "whole": drawn(columns, dtype=left.dtype),
        "every other": drawn(2 * columns, dtype=left.dtype)[::2],
        "one": drawn(1, dtype=left.dtype),
        "a number": np.array(0.5, left.dtype),
    }[bias]
    before = kernels_run()
    made = reductions.kernels()["linear"](left, weight, added)
    assert kernels_run() - before == is_own
    expected = left.astype(np.float64) @ weight.astype(np.float64).T
    expected += 0 if added is None else added
    assert made.dtype == left.dtype
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-4)


def test_shapes_that_do_not_fit_are_refused_as_ever():
    with pytest.raises(ValueError, match="matmul"):
        reductions.kernels()["matmul"](drawn(100, 80), drawn(81, 70))
