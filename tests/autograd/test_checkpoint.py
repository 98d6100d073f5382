"""gt.utils.checkpoint: gradients of PyTorch's, the same random numbers again, and less memory."""

import gc

import pytest
import torch.utils.checkpoint
from same_program import check

import gt
from gt.utils.checkpoint import checkpoint, checkpoint_sequential, set_checkpoint_early_stop

BOTH = pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "recorded"])


def weights(t):
    w = (t.arange(16.0).reshape(4, 4) / 16 - 0.4).requires_grad_()
    x = (t.arange(8.0).reshape(2, 4) / 8).requires_grad_()
    return w, x


def several(t, reentrant):
    w, x = weights(t)

    def block(x, y, scale):
        h = (x @ w).tanh()
        return h * scale, (h + y).exp(), scale

    y = x.detach() * 2
    out = t.utils.checkpoint.checkpoint(block, x, y, 3.0, use_reentrant=reentrant)
    (out[0] * out[1]).sum().backward()
    return out, w.grad, x.grad


def chained(t, reentrant):
    w, x = weights(t)
    h = x
    for _ in range(4):
        h = t.utils.checkpoint.checkpoint(lambda h: (h @ w).tanh(), h, use_reentrant=reentrant)
    h.pow(2).sum().backward()
    return h, w.grad, x.grad


def nested(t, reentrant):
    w, x = weights(t)
    calls = []

    def inner(h):
        calls.append("inner")
        return (h @ w).sin()

    def outer(h):
        calls.append("outer")
        h = t.utils.checkpoint.checkpoint(inner, h * 2, use_reentrant=reentrant)
        return t.utils.checkpoint.checkpoint(inner, h.exp(), use_reentrant=reentrant)

    out = t.utils.checkpoint.checkpoint(outer, x, use_reentrant=reentrant)
    out.sum().backward()
    return out, w.grad, x.grad, calls.count("outer")


def sequential(t, reentrant):
    w, x = weights(t)
    functions = [lambda h: (h @ w).tanh(), lambda h: h.exp(), lambda h: h @ w, lambda h: h.sin()]
    out = t.utils.checkpoint.checkpoint_sequential(
        [*functions, lambda h: h * 2], 2, x, use_reentrant=reentrant
    )
    out.sum().backward()
    return out, w.grad, x.grad


def keywords(t):
    w, x = weights(t)

    def block(x, *, scale, shift=0.0):
        return (x @ w * scale + shift).exp()

    out = t.utils.checkpoint.checkpoint(block, x.detach(), use_reentrant=False, scale=w[0])
    out.sum().backward()
    return out, w.grad


def second_derivatives(t):
    w, x = weights(t)
    out = t.utils.checkpoint.checkpoint(lambda x: (x @ w).exp().sum(), x, use_reentrant=False)
    (first,) = t.autograd.grad(out, x, create_graph=True)
    return first, t.autograd.grad(first.sum(), (x, w))


def retained(t):
    w, x = weights(t)
    out = t.utils.checkpoint.checkpoint(lambda x: (x @ w).exp().sum(), x, use_reentrant=False)
    out.backward(retain_graph=True)
    out.backward()
    return x.grad, w.grad


def grad_of_reentrant(t):
    w, x = weights(t)
    out = t.utils.checkpoint.checkpoint(lambda x: (x @ w).exp().sum(), x, use_reentrant=True)
    return t.autograd.grad(out, x)


def keywords_of_reentrant(t):
    w, x = weights(t)
    return t.utils.checkpoint.checkpoint(lambda x, y: x, x, use_reentrant=True, y=w)


def another_number(t):
    w, x = weights(t)
    calls = []

    def block(x):
        calls.append(1)
        return (x @ w).exp().sin() if len(calls) == 1 else (x @ w).exp()

    with t.utils.checkpoint.set_checkpoint_early_stop(False):
        out = t.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    out.sum().backward()


def unknown_check(t):
    return t.utils.checkpoint.checkpoint(
        lambda x: x, weights(t)[1], use_reentrant=False, determinism_check="mine"
    )


@BOTH
@pytest.mark.parametrize("program", [several, chained, nested, sequential])
def test_gradients_are_pytorch_s(program, reentrant):
    check(lambda t: program(t, reentrant), tolerance=1e-5)


@pytest.mark.parametrize(
    "program",
    [keywords, second_derivatives, retained, grad_of_reentrant, keywords_of_reentrant,
     another_number, unknown_check],
)  # fmt: skip
def test_what_each_form_takes_and_refuses_is_pytorch_s(program):
    check(program, tolerance=1e-5)


def test_without_the_argument_it_warns_as_pytorch_and_is_reentrant():
    w, x = weights(gt)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        out = checkpoint(lambda x: x @ w, x)
    assert out.grad_fn.name() == "_ReentrantBackward"
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        assert not checkpoint(lambda x: x @ w, x.detach(), use_reentrant=True).requires_grad


@BOTH
@pytest.mark.parametrize("preserve", [True, False])
def test_dropout_draws_the_same_numbers_again(reentrant, preserve):
    """The gradient is that of the mask of the forward; draws go on as without a checkpoint."""

    def run(call):
        gt.manual_seed(3)
        x = gt.ones(64, requires_grad=True)
        out = call(lambda x: gt.nn.functional.dropout(x, 0.5) * x, x)
        later = gt.rand(2)
        out.sum().backward()
        return out.tolist(), x.grad.tolist(), later.tolist(), gt.rand(2).tolist()

    def checkpointed(function, x):
        return checkpoint(function, x, use_reentrant=reentrant, preserve_rng_state=preserve)

    direct = run(lambda function, x: function(x))
    got = run(checkpointed)
    assert got[0] == direct[0]
    assert got[2] == direct[2]
    if preserve:
        assert got == direct
    else:
        assert got[3] != direct[3]


def held_after_forward(call):
    """Bytes that the worker holds for a chain of blocks before its backward, and gradients."""
    gc.collect()
    w = (gt.eye(64) * 0.9).requires_grad_()
    x = gt.ones(256, 64)

    def block(h):
        for _ in range(6):
            h = (h @ w).tanh().exp().sin()
        return h

    before = gt.debug.get_worker_stats()[0]["bytes"]
    h = x.requires_grad_()
    for _ in range(3):
        h = call(block, h)
    loss = h.pow(2).mean()
    held = gt.debug.get_worker_stats()[0]["bytes"] - before
    loss.backward()
    return held, w.grad.tolist(), x.grad.tolist()


@BOTH
def test_less_memory_is_held_at_the_end_of_the_forward(reentrant):
    direct = held_after_forward(lambda block, h: block(h))
    got = held_after_forward(lambda block, h: checkpoint(block, h, use_reentrant=reentrant))
    assert got[0] < direct[0] / 5, (got[0], direct[0])
    assert got[1:] == direct[1:]


def test_a_nested_checkpoint_holds_no_activation_of_the_outer_one():
    def halves(block, h):
        return checkpoint(
            lambda h: checkpoint(block, h + 1, use_reentrant=False), h, use_reentrant=False
        )

    direct = held_after_forward(lambda block, h: block(h + 1))
    one = held_after_forward(lambda block, h: checkpoint(block, h, use_reentrant=False))
    got = held_after_forward(halves)
    assert got[0] == one[0]
    assert got[1:] == direct[1:]


def test_what_was_computed_again_is_freed_with_the_graph():
    gc.collect()
    before = gt.debug.get_worker_stats()[0]["bytes"]
    gc.disable()
    try:
        _, x = weights(gt)
        checkpoint(lambda x: (x @ x.T).exp().sum(), x, use_reentrant=False).backward()
        del _, x
        assert gt.debug.get_worker_stats()[0]["bytes"] == before
    finally:
        gc.enable()


def test_early_stop_leaves_out_what_nobody_needs():
    w, x = weights(gt)
    calls = []

    def block(x):
        h = (x @ w).exp()
        calls.append("saved all")
        return h * 1

    checkpoint(block, x, use_reentrant=False).sum().backward()
    assert len(calls) == 1
    with set_checkpoint_early_stop(False):
        out = checkpoint(block, x, use_reentrant=False)
    out.sum().backward()
    assert len(calls) == 3


def test_modules_and_contexts():
    gt.manual_seed(0)
    net = gt.nn.Sequential(gt.nn.Linear(4, 4), gt.nn.Tanh(), gt.nn.Linear(4, 4), gt.nn.Tanh())
    x = gt.rand(2, 4)
    net(x).sum().backward()
    expected = [p.grad.tolist() for p in net.parameters()]
    net.zero_grad()
    checkpoint_sequential(net, 2, x, use_reentrant=False).sum().backward()
    assert [p.grad.tolist() for p in net.parameters()] == expected
    entered = []

    class Noted:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            entered.append(self.name)

        def __exit__(self, *reason):
            entered.append(self.name)

    out = checkpoint(
        net, x, use_reentrant=False, context_fn=lambda: (Noted("forward"), Noted("again"))
    )
    assert entered == ["forward", "forward"]
    out.sum().backward()
    assert entered == ["forward", "forward", "again", "again"]
    assert torch.utils.checkpoint is not gt.utils.checkpoint
