"""Norms over channels, PReLU, triplets and draws of classes against PyTorch."""

import numpy as np
import pytest
import torch
from spread_session import workers
from test_nn import LIBRARIES, check, check_module, close, drawn, twins

import gt

FLAT, LINE, IMAGE = (drawn(3, shape)[0] for shape in ((5, 4), (5, 4, 3), (5, 4, 2, 3)))
NORMS = {
    "1d": (lambda t: t.nn.BatchNorm1d(4), FLAT),
    "1d of a sequence": (lambda t: t.nn.BatchNorm1d(4, eps=1e-2, momentum=0.3), LINE),
    "2d": (lambda t: t.nn.BatchNorm2d(4), IMAGE),
    "mean of all": (lambda t: t.nn.BatchNorm1d(4, momentum=None), FLAT),
    "plain": (lambda t: t.nn.BatchNorm1d(4, affine=False), LINE),
    "without running": (lambda t: t.nn.BatchNorm1d(4, track_running_stats=False), FLAT),
    "without a bias": (lambda t: t.nn.BatchNorm1d(4, bias=False), FLAT),
    "groups": (lambda t: t.nn.GroupNorm(2, 4), IMAGE),
    "groups of one": (lambda t: t.nn.GroupNorm(4, 4, eps=1e-2, bias=False), LINE),
    "groups, flat": (lambda t: t.nn.GroupNorm(2, 4, affine=False), FLAT),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_over_channels(name):
    make, array = NORMS[name]
    check_module(make, [array])
    check_module(lambda t: make(t).eval(), [array])


@pytest.mark.parametrize("name", NORMS)
def test_running_values_follow(name):
    make, array = NORMS[name]
    ours, theirs = twins(make)
    for step in range(3):
        for library, module in ((gt, ours), (torch, theirs)):
            module(library.tensor(array * (step + 1) + step))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for key, value in theirs.state_dict().items():
        close(ours.state_dict()[key], value, key, 1e-6)
    assert str(ours) == str(theirs)


@pytest.mark.parametrize("count", [2, 3])
def test_a_cut_batch_has_the_norm_of_the_whole(count):
    array = drawn(4, (7, 4))[0]
    with workers(count):
        results = []
        for cut in (None, 0):
            norm = gt.nn.BatchNorm1d(4).double()
            x = gt.tensor(array.astype("float64"))
            x = gt.distribute(x, dim=cut) if cut is not None else x
            out = norm(x.requires_grad_())
            (out * out.tanh()).sum().backward()
            results.append((out, x.grad, norm.weight.grad, norm.running_mean, norm.running_var))
        for whole, shards in zip(*results, strict=True):
            np.testing.assert_allclose(shards.detach().numpy(), whole.detach().numpy(), rtol=1e-12)


def test_what_norms_refuse():
    for library in LIBRARIES:
        x = library.tensor(FLAT)
        with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
            library.nn.BatchNorm1d(4)(x[:1])
        with pytest.raises(ValueError, match="expected 4D input"):
            library.nn.BatchNorm2d(4)(x)
        with pytest.raises(ValueError, match="must be divisible by num_groups"):
            library.nn.GroupNorm(3, 4)
        with pytest.raises(RuntimeError, match="divisible by num_groups, but got input of shape"):
            library.nn.functional.group_norm(x, 3)


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("array", [FLAT, IMAGE], ids=["flat", "image"])
def test_prelu(channels, array):
    check_module(lambda t: t.nn.PReLU(channels, init=0.1), [array])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", [{}, {"margin": 0.3, "p": 1}, {"swap": True}])
def test_triplet_margin_loss(options, reduction):
    arrays = drawn(5, (6, 4), (6, 4), (6, 4))
    check(
        lambda t, a, p, n: t.nn.functional.triplet_margin_loss(
            a, p, n, reduction=reduction, **options
        ),
        arrays,
    )
    check(lambda t, *x: t.nn.TripletMarginLoss(**options, reduction=reduction)(*x), arrays)


def test_gumbel_softmax():
    gt.manual_seed(0)
    scores = gt.tensor(np.log([0.2, 0.5, 0.3])).expand(20_000, 3).clone().requires_grad_()
    hard = gt.nn.functional.gumbel_softmax(scores, tau=0.7, hard=True)
    assert set(hard.detach().flatten().tolist()) == {0.0, 1.0}
    np.testing.assert_allclose(hard.detach().mean(0).tolist(), [0.2, 0.5, 0.3], atol=0.02)
    (hard * gt.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert scores.grad.abs().sum().item() > 0  # the soft one's gradient
    soft = gt.nn.functional.gumbel_softmax(scores.detach(), tau=2.0, dim=0)
    np.testing.assert_allclose(soft.sum(0).tolist(), [1.0] * 3, rtol=1e-9)
