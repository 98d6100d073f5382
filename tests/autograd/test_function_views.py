"""Views that a user's Function returns: writes to them, and to what they are of, beside torch."""

import itertools

import pytest
import torch

import gt

RETURNS = {
    "a view": lambda x: x.view(-1),
    "a part": lambda x: x[0],
    "its input": lambda x: x,
    "all of its input": lambda x: x.view_as(x),
    "a view and a value": lambda x: (x.view(-1), x * 2),
    "two views": lambda x: (x.view(-1), x[0]),
    "a view of its own": lambda x: (x * 2).view(-1),
    "a value and its view": lambda x: (y := x * 2, y.view(-1)),
    "a value": lambda x: x * 2,
}
WRITES = {
    "add_": lambda m, y, x: y.add_(1),
    "setitem": lambda m, y, x: y.__setitem__(0, 5.0),
    "a part's add_": lambda m, y, x: y[0].add_(1),
    "a detached twin's": lambda m, y, x: y.detach().add_(1),
    "without recording": lambda m, y, x: unrecorded(m, y),
    "copy_": lambda m, y, x: y.copy_(m.ones(y.shape)),
    "the argument's": lambda m, y, x: x.add_(1),
    "unsqueeze_": lambda m, y, x: y.unsqueeze_(0),
    "none": lambda m, y, x: None,
}


PAIRS = list(itertools.product(RETURNS, ("leaf", "inner", "plain")))


def unrecorded(m, y):
    with m.no_grad():
        y.add_(1)


def outcome(m, returned, write, kind):
    class Returning(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return RETURNS[returned](x)

        @staticmethod
        def backward(ctx, *gradients):
            return m.full((2, 3), sum(g.sum().item() for g in gradients if g is not None))

    x = m.arange(6.0).view(2, 3).clone()
    x.requires_grad_(kind != "plain")
    argument = x * 1 if kind == "inner" else x
    try:
        result = Returning.apply(argument)
        y = result[0] if isinstance(result, tuple) else result
        WRITES[write](m, y, argument)
        shown = [y.tolist(), argument.tolist(), y.requires_grad]
        if y.requires_grad:
            y.sum().backward()
            shown.append(x.grad.tolist())
    except RuntimeError as error:
        return str(error).split(". Write it as")[0].removesuffix(".")
    return shown


@pytest.mark.parametrize(("returned", "kind"), PAIRS)
def test_writes_are_refused_where_pytorch_refuses_them(returned, kind):
    for write in WRITES:
        if (returned, write, kind) == ("its input", "unsqueeze_", "plain"):
            continue  # where nothing is recorded, GT returns the argument itself
        ours, theirs = outcome(gt, returned, write, kind), outcome(torch, returned, write, kind)
        assert ours == theirs, write


def test_hooks_of_modules_still_let_their_results_be_written():
    layer = gt.nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda module, before, after: None)
    y = layer(gt.ones(1, 2, requires_grad=True))
    y.add_(1).sum().backward()
    assert layer.weight.grad is not None
