"""Functions of arithmetic take a number in the tensor's place, as PyTorch's do."""

import itertools

import pytest
import torch

import gt

FUNCTIONS = [
    "add",
    "sub",
    "subtract",
    "mul",
    "multiply",
    "div",
    "divide",
    "true_divide",
    "floor_divide",
    "remainder",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
]
NUMBERS = [7, -2.5, True, 0, 1.5 + 2j]
DTYPES = ["float32", "bfloat16", "int32", "uint8", "bool", "complex64"]


def outcome(m, name, *args, **named):
    """Dtype and values, or the class of the error."""
    try:
        out = getattr(m, name)(*args, **named)
        return repr(out.dtype).partition(".")[2], out.tolist()
    except (TypeError, RuntimeError) as error:
        return TypeError if isinstance(error, TypeError) else RuntimeError


@pytest.mark.parametrize(("name", "dtype"), [*itertools.product(FUNCTIONS, DTYPES)])
def test_a_number_and_a_tensor(name, dtype):
    for number in NUMBERS:
        ours, theirs = (
            outcome(m, name, number, m.tensor([1, 3, 2], dtype=getattr(m, dtype)))
            for m in (gt, torch)
        )
        assert repr(ours) == repr(theirs), number


@pytest.mark.parametrize("name", FUNCTIONS)
def test_two_numbers(name):
    for numbers in ((7, 2), (7.5, 2), (True, 3), (2, 0.5)):
        assert repr(outcome(gt, name, *numbers)) == repr(outcome(torch, name, *numbers)), numbers


def test_named_arguments():
    calls = [
        ("add", (2,), {"alpha": 3}),
        ("sub", (2,), {"alpha": 0.5}),
        ("add", (2.5,), {"alpha": 2}),
        ("div", (7,), {"rounding_mode": "floor"}),
        ("div", (7,), {"rounding_mode": "trunc"}),
    ]
    for name, first, named in calls:
        for values in ([1.0, -3.0, 2.0], [1, -3, 2]):
            ours, theirs = (
                outcome(m, name, *first, m.tensor(values), **named) for m in (gt, torch)
            )
            assert repr(ours) == repr(theirs), (name, named, values)
    for m in (gt, torch):
        assert m.mul(input=2, other=m.tensor([3.0])).tolist() == [6.0]


def test_gradients_pass():
    x = gt.tensor([1.0, 2.0], requires_grad=True)
    (gt.mul(3, x) + gt.sub(1, x) + gt.true_divide(4, x)).sum().backward()
    assert x.grad.tolist() == [-2.0, 1.0]


@pytest.mark.parametrize("name", ["fmod", "maximum", "eq", "rsub", "atan2", "logical_and"])
def test_others_take_none(name):
    for m in (gt, torch):
        with pytest.raises(TypeError):
            getattr(m, name)(2, m.ones(2))
