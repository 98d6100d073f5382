"""Tensors that PyTorch saves for operators that GT composes of several (gt/tensors/kept.py)."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import gt

MODIFIED = "modified by an inplace operation"
# Methods that write their tensor, which is an operand that PyTorch's operator keeps.
IN_PLACE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "addcdiv_": lambda m, x, y: x.addcdiv_(y, y + 1),
    "logit_": lambda m, x, y: x.logit_(0.1),
    "nan_to_num_": lambda m, x, y: x.nan_to_num_(),
    "sgn_": lambda m, x, y: x.sgn_(),
    "cumprod_": lambda m, x, y: x.cumprod_(0),
    "index_copy_": lambda m, x, y: x.index_copy_(0, m.tensor([1, 0]), y[:2]),
    "index_fill_": lambda m, x, y: x.index_fill_(0, m.tensor([1, 0]), 3.0),
    "index_put_": lambda m, x, y: x.index_put_((m.tensor([1, 0]),), y[:2]),
    "index_add_": lambda m, x, y: x.index_add_(0, m.tensor([1, 0]), y[:2]),
    "div_": lambda m, x, y: x.div_(y + 1, rounding_mode="floor"),
    "hardtanh_": lambda m, x, y: m.nn.functional.hardtanh_(x, 0.2, 0.7),
    "relu6": lambda m, x, y: m.nn.functional.relu6(x, inplace=True),
    "hardswish": lambda m, x, y: m.nn.functional.hardswish(x, inplace=True),
    "hardsigmoid": lambda m, x, y: m.nn.functional.hardsigmoid(x, inplace=True),
    "threshold_": lambda m, x, y: m.nn.functional.threshold_(x, 0.4, 0.1),
}


def gradients(m: Any, write: Callable[[Any, Any, Any], Any], x_requires: bool) -> object:
    x = m.tensor([0.2, 0.5, 0.9], requires_grad=x_requires)
    y = m.tensor([0.3, 0.4, 0.8], requires_grad=True)
    copy = x.clone()
    write(m, copy, y)
    ((copy * copy).sum() + y.sum()).backward()
    return [
        copy.tolist(),
        None if x.grad is None else (x.grad + m.zeros(3)).tolist(),
        y.grad.tolist(),
    ]


@pytest.mark.parametrize("x_requires", [True, False])
@pytest.mark.parametrize("name", IN_PLACE)
def test_a_write_by_the_operator_itself_is_no_write_since(name, x_requires):
    ours, theirs = (gradients(m, IN_PLACE[name], x_requires) for m in (gt, torch))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda m, x: x * x,
    "cumprod": lambda m, x: x.cumprod(0),
    "logit": lambda m, x: x.logit(),
    "norm": lambda m, x: x.norm(),
    "hardtanh": lambda m, x: m.nn.functional.hardtanh(x),
    "huber_loss": lambda m, x: m.nn.functional.huber_loss(x, m.zeros(3)),
    "median": lambda m, x: x.median(),
}


def outcome(run: Callable[[], object]) -> object:
    try:
        return run()
    except RuntimeError as error:
        return str(error)[:60]


def passes(m: Any, operator: Callable[[Any, Any], Any]) -> list[object]:
    """Two passes through one graph, the first of which frees it."""
    x = m.tensor([0.2, 0.5, 0.9], requires_grad=True)
    loss = operator(m, x).sum()
    loss.backward()
    return [outcome(loss.backward), x.grad.tolist()]


def second_derivatives(m: Any, operator: Callable[[Any, Any], Any], *, writes: bool) -> object:
    x = m.tensor([0.2, 0.5, 0.9], requires_grad=True)
    used = x * 1
    (grad,) = m.autograd.grad(operator(m, used).sum(), [x], create_graph=True)
    if writes:
        with m.no_grad():
            used.mul_(2)
    if not grad.requires_grad:
        return None
    return outcome(lambda: m.autograd.grad(grad.sum(), [x], allow_unused=True)[0])


def under_hooks(m: Any, operator: Callable[[Any, Any], Any]) -> list[object]:
    """Tensors that the program's own hooks keep may be written."""
    x = m.tensor([0.2, 0.5, 0.9], requires_grad=True)
    used = x * 1
    with m.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        loss = operator(m, used).sum()
    with m.no_grad():
        used.mul_(2)
    loss.backward()
    return x.grad.tolist()


@pytest.mark.parametrize("name", OPERATORS)
def test_a_second_pass_is_refused_where_pytorch_refuses_it(name):
    ours, theirs = (passes(m, OPERATORS[name]) for m in (gt, torch))
    assert ours[0] == theirs[0]
    torch.testing.assert_close(ours[1], theirs[1])


@pytest.mark.parametrize("name", OPERATORS)
def test_second_derivatives_are_those_without_what_is_kept(name):
    ours, theirs = (second_derivatives(m, OPERATORS[name], writes=False) for m in (gt, torch))
    zeros = [0.0] * 3
    mine, other = (zeros if x is None else x.tolist() for x in (ours, theirs))
    torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OPERATORS)
def test_nothing_is_kept_beside_the_programs_own_functions(name):
    ours, theirs = (under_hooks(m, OPERATORS[name]) for m in (gt, torch))
    torch.testing.assert_close(ours, theirs)


def test_the_error_names_what_was_written():
    texts = []
    for m in (torch, gt):
        x = m.ones(2, 3, requires_grad=True)
        used = x * 0.5
        out = used.logit()
        with m.no_grad():
            used.mul_(2)
        with pytest.raises(RuntimeError, match=MODIFIED) as error:
            out.sum().backward()
        texts.append(str(error.value))
    theirs, ours = (text.partition("[torch.")[2] for text in texts)
    assert theirs.partition("]]")[0] == ours.partition("]]")[0]
    assert "is at version 1; expected version 0 instead" in ours


def test_nothing_is_kept_without_a_gradient():
    x = gt.ones(3)
    y = x.logit()
    x.mul_(2)
    assert not y.requires_grad
    with gt.no_grad():
        assert not gt.ones(3, requires_grad=True).logit().requires_grad
