"""numpy's functions and arrays over GT's tensors, beside PyTorch's."""

import numpy as np
import pytest
import torch

import gt

ARRAY = np.array([3.0, 2.0], dtype=np.float32)


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")  # PyTorch's
@pytest.mark.parametrize(
    "call",
    [
        np.sqrt,
        np.exp,
        np.abs,
        np.negative,
        lambda x: np.sqrt(x[0]),
        lambda x: np.maximum(x, ARRAY),
        lambda x: np.float64(2.0) * x,
        lambda x: np.float32(2.0) ** x,
        lambda x: np.int64(2) * x.long(),
        lambda x: x * ARRAY,
    ],
)
def test_a_function_of_numpys_gives_a_tensor(call):
    theirs, ours = (call(m.tensor([1.0, 4.0])) for m in (torch, gt))
    assert isinstance(ours, gt.Tensor)
    assert str(ours.dtype).replace("gt", "torch") == str(theirs.dtype)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def test_an_array_on_the_left_meets_the_tensors_operator():
    x, array = gt.tensor([1.0, 4.0], requires_grad=True), ARRAY.copy()
    for made, wanted in (
        (array + x, [4, 6]),
        (array - x, [2, -2]),
        (array / x, [3, 0.5]),
        (array @ x, 11),
        (array**x, [3, 16]),
        (array >= x, [True, False]),
        (array == x, [False, False]),
    ):
        assert isinstance(made, gt.Tensor)
        assert made.tolist() == wanted
    (array * x).sum().backward()
    assert x.grad.tolist() == array.tolist()


def test_writing_into_an_array_and_reducing_stay_numpys():
    x, array = gt.tensor([1.0, 4.0]), ARRAY.copy()
    array += x
    assert array.tolist() == [4, 6]
    assert isinstance(array, np.ndarray)
    assert np.add.reduce(x) == 5
    fraction, whole = np.modf(x + 0.5)
    assert (fraction.tolist(), whole.tolist()) == ([0.5, 0.5], [1, 4])
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        np.sqrt(gt.ones(2, requires_grad=True))


def test_reversed_goes_from_the_last_row():
    for m in (torch, gt):
        assert [row.tolist() for row in reversed(m.arange(4).view(2, 2))] == [[2, 3], [0, 1]]
        assert reversed(m.tensor(3)).item() == 3
