"""Warnings about what is seldom meant: PyTorch's text, at the user's line."""

import warnings

import pytest
import torch

import gt

CALLS = {
    "a mean that is no divergence": lambda m: m.nn.functional.kl_div(m.ones(2, 3), m.ones(2, 3)),
    "softmax": lambda m: m.nn.functional.softmax(m.ones(2, 3)),
    "log_softmax": lambda m: m.nn.functional.log_softmax(m.ones(2, 3)),
    "softmin": lambda m: m.nn.functional.softmin(m.ones(2, 3)),
    "dropout of one layer": lambda m: m.nn.LSTM(2, 3, dropout=0.5),
    "a gradient that no pass keeps": lambda m: (m.ones(1, requires_grad=True) * 2).grad,
}
QUIET = {
    "an older argument": lambda m: m.nn.functional.softmax(m.ones(2, 3), dim=1),
    "batchmean": lambda m: m.nn.functional.kl_div(m.ones(2), m.ones(2), reduction="batchmean"),
    "a leaf": lambda m: m.ones(1, requires_grad=True).grad,
    "no history": lambda m: (m.ones(1) * 2).grad,
    "two layers": lambda m: m.nn.GRU(2, 3, 2, dropout=0.5),
}


def told(call, library):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(library)
    return [(each.category, str(each.message).split(" (Triggered")[0]) for each in caught], caught


@pytest.mark.parametrize("name", CALLS)
def test_the_warning_is_pytorchs(name):
    (theirs, _), (ours, caught) = (told(CALLS[name], library) for library in (torch, gt))
    assert ours == theirs
    assert caught[0].filename == __file__


@pytest.mark.parametrize("name", QUIET)
def test_nothing_is_said(name):
    for library in (torch, gt):
        assert not told(QUIET[name], library)[0]


def test_a_kept_gradient_is_read_in_silence():
    x = gt.ones(1, requires_grad=True) * 2
    x.retain_grad()
    assert x.grad is None
    x.backward()
    assert x.grad.tolist() == [1]
