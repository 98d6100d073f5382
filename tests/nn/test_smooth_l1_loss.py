"""smooth_l1_loss and huber_loss are one instruction each way, with PyTorch's values."""

import math

import pytest
import torch

import gt
import gt.nn.functional as ours
from gt import _core

LOSSES = {
    "smooth_l1_loss": [{}, {"beta": 0.5}, {"beta": 2.0}, {"beta": 0.0}],
    "huber_loss": [{}, {"delta": 0.5}],
}
CALLS = [(name, options) for name in LOSSES for options in LOSSES[name]]
X = [0.25, -3.0, 1.0, -1.0, 0.0, 0.5, math.inf, 7.0, -0.5]
Y = [0.5, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, math.nan, 0.0]


def lost(m, name, options, dtype):
    dtype = getattr(m, dtype)
    x, y = (m.tensor(data, dtype=dtype, requires_grad=True) for data in (X, Y))
    loss = getattr(m.nn.functional, name)(x, y, **options)
    return [loss, *m.autograd.grad(loss.sum(), [x, y])]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("name", "options"), CALLS)
def test_values_and_gradients_are_pytorchs(name, options, reduction, dtype):
    options = {**options, "reduction": reduction}
    for got, want in zip(
        lost(gt, name, options, dtype), lost(torch, name, options, dtype), strict=True
    ):
        torch.testing.assert_close(
            torch.tensor(got.tolist(), dtype=want.dtype), want.detach(), equal_nan=True
        )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("name", "options"), CALLS)
def test_second_derivatives_are_pytorchs(name, options, reduction):
    answers = []
    for m in (gt, torch):
        x = m.tensor(X[:6], dtype=m.float64, requires_grad=True)
        y = m.tensor(Y[:6], dtype=m.float64, requires_grad=True)
        loss = getattr(m.nn.functional, name)(x, y, reduction=reduction, **options)
        (slope,) = m.autograd.grad((loss * loss).sum(), [x], create_graph=True)
        answers.append([g.tolist() for g in m.autograd.grad(slope.square().sum(), [x, y])])
    for got, want in zip(*answers, strict=True):
        assert got == pytest.approx(want)


@pytest.mark.parametrize(("name", "options"), [CALLS[0], CALLS[1], CALLS[4]])
def test_one_instruction_each_way(name, options):
    x, y = gt.tensor(X, requires_grad=True), gt.tensor(Y)
    loss = getattr(ours, name)(x, y, **options)
    loss.backward()
    before = _core.stats()["instructions"]
    loss = getattr(ours, name)(x, y, **options)
    forward = _core.stats()["instructions"] - before
    (_,) = gt.autograd.grad(loss, [x])
    both = _core.stats()["instructions"] - before
    assert (forward, both) == (1, 3)  # the gradient of the loss, ones, is the third


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float64", "float32")])
def test_gradients_have_the_dtypes_of_their_operands(dtypes):
    answers = []
    for m in (gt, torch):
        x, y = (
            m.tensor(data[:6], dtype=getattr(m, dtype), requires_grad=True)
            for data, dtype in zip((X, Y), dtypes, strict=True)
        )
        loss = m.nn.functional.smooth_l1_loss(x, y)
        slopes = m.autograd.grad(loss, [x, y])
        answers.append([str(v.dtype).split(".")[-1] for v in (loss, *slopes)])
        answers[-1] += [pytest.approx(v.tolist(), rel=1e-6) for v in slopes]
    assert [str(answer) for answer in answers[0]] == [str(answer) for answer in answers[1]]
