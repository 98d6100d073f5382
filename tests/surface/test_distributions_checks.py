"""Checks of distributions' arguments: which of them cost a round trip, and that they agree."""

import math

import numpy as np
import pytest
import torch
import torch.distributions

import gt
import gt.distributions
from gt.distributions import distribution, few_numbers

SIDES = {"torch": (torch, torch.distributions), "gt": (gt, gt.distributions)}


@pytest.fixture(autouse=True)
def validated():
    """PyTorch's compiler switches the checks of distributions off for the process it runs in."""
    torch.distributions.Distribution.set_default_validate_args(True)
    yield
    torch.distributions.Distribution.set_default_validate_args(__debug__)


def instructions_of(make):
    gt.zeros(1).tolist()  # a session, which others may have ended
    before = gt.debug.stats()["instructions"]
    make()
    return gt.debug.stats()["instructions"] - before


NUMBERS = {
    "int": lambda m: m.tensor(1),
    "list": lambda m: m.tensor([1]),
    "numpy's number": lambda m: m.tensor(np.int64(1)),
    "array": lambda m: m.from_numpy(np.array([1])),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_numbers_of_the_program_are_checked_where_they_are(what, monkeypatch):
    """No operator and no read for the check; a gather and the views around it for the value."""

    def read(*_):
        raise AssertionError("a read")

    dist = gt.distributions.Categorical(gt.tensor([0.25, 0.75]))
    dist.logits.tolist()
    value = NUMBERS[what](gt)
    with monkeypatch.context() as patched:
        patched.setattr(gt._core, "read_numbers", read)
        patched.setattr(distribution, "_read", read)
        count = instructions_of(lambda: dist.log_prob(value))
    assert count <= 3 + value.ndim  # the logits are expanded
    want = torch.distributions.Categorical(torch.tensor([0.25, 0.75]))
    expected = want.log_prob(NUMBERS[what](torch))
    np.testing.assert_allclose(dist.log_prob(value).numpy(), expected.numpy(), rtol=1e-6)


def test_a_few_parameters_are_read_instead_of_checked_by_operators():
    loc, scale, probs = gt.zeros(1), gt.ones(1), gt.full((3,), 1 / 3)
    assert instructions_of(lambda: gt.distributions.Normal(loc, scale)) == 1  # both as one value
    assert instructions_of(lambda: gt.distributions.Categorical(probs)) == 2  # the quotient


WRONG_NUMBERS = {
    "int": (2, -1),
    "list": ([0, 2], [1, -1]),
    "float": (0.5, float("nan"), float("inf")),
}


@pytest.mark.parametrize("what", WRONG_NUMBERS)
def test_wrong_numbers_of_the_program_are_told_as_in_pytorch(what):
    for data in WRONG_NUMBERS[what]:
        texts = []
        for module, space in SIDES.values():
            dist = space.Categorical(module.tensor([0.5, 0.5]))
            with pytest.raises(ValueError, match="to be within the support") as caught:
                dist.log_prob(module.tensor(data))
            text = str(caught.value).replace("torch.", "gt.")
            texts.append(text.partition("invalid values:")[0])
        assert texts[1] == texts[0]


LIMITS = {
    "positive": [0.0, 1e-45, -0.0, 1.0, math.inf, math.nan, -1.0],
    "nonnegative": [0.0, -0.0, -1e-45, math.inf, math.nan],
    "unit_interval": [0.0, 1.0, 1.0000001, -1e-45, math.nan],
    "boolean": [0.0, 1.0, 0.5, math.nan],
    "real": [0.0, math.inf, math.nan],
    "nonnegative_integer": [0.0, 3.0, 0.5, -1.0, math.inf, math.nan],
    "simplex": [[0.5, 0.5], [0.5, 0.5000004], [0.5, 0.50001], [1.5, -0.5], [math.nan, 1.0]],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LIMITS)
def test_what_a_few_numbers_are_sure_of_is_so_in_pytorch(name, dtype):
    """A check here never says more than the worker's, and says it of plain values."""
    limit, theirs = (
        getattr(gt.distributions.constraints, name),
        getattr(torch.distributions.constraints, name),
    )
    answers = []
    for data in LIMITS[name]:
        value = torch.tensor(data, dtype=getattr(torch, dtype))
        numbers = value.reshape(-1).tolist()
        sure = few_numbers.surely(limit, numbers, value.shape[-1] if value.ndim else 1)
        assert not sure or theirs.check(value).all()
        answers.append(sure)
    assert True in answers
    assert name == "simplex" or answers[0] == bool(theirs.check(torch.tensor(LIMITS[name][0])))


def test_a_bound_that_rounds_to_the_number_is_left_to_the_worker():
    limit = gt.distributions.constraints.greater_than(0.1)
    assert not few_numbers.surely(limit, [float(np.float32(0.1))], 1)


def test_a_value_that_was_written_is_checked_again():
    value = gt.tensor([1.0])
    dist = gt.distributions.Bernoulli(gt.tensor([0.5]))
    dist.log_prob(value)
    value.fill_(2.0)
    with pytest.raises(ValueError, match="to be within the support"):
        dist.log_prob(value)
    value.fill_(0.0)
    assert dist.log_prob(value).item() == pytest.approx(math.log(0.5))
    view = value[0]
    value.fill_(3.0)
    with pytest.raises(ValueError, match="to be within the support"):
        dist.log_prob(view)


def test_the_numbers_of_a_value_that_is_gone_are_forgotten():
    """Its slot is soon another value's."""
    for number in range(200):
        sent = gt.tensor(number)
        assert gt._core.known_numbers(sent) == [number]
        computed = sent + 1
        assert gt._core.known_numbers(computed) is None
        del sent
        later = [computed + k for k in range(3)]
        assert all(gt._core.known_numbers(x) is None for x in later)
        assert gt._core.read_numbers(later[2]) == [number + 3]
        assert gt._core.known_numbers(later[2]) == [number + 3]
        assert later[2].item() == number + 3
