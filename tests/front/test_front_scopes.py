"""Backward passes of PyTorch programs run where the scopes of their operators say."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from front_paths import front_path  # noqa: F401 - runs each test in both ways
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_session import torch_workers

import gt
import gt.torch
from gt import _core
from gt.config import scopes
from gt.torch import backward_scopes

Weights = list[torch.Tensor]


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(3):
        for worker in range(3):
            gt.register_config(f"on{worker}", gt.SignalConfig(workers=[worker]))
        away = gt.SignalConfig(workers=[0], backward="on2")
        gt.register_config("gradients on 2", away)
        yield
        for name in ("on0", "on1", "on2", "gradients on 2"):
            gt.register_config(name, None)


def blocks(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    for number, weight in enumerate(weights):
        with gt.signal.context(f"on{number % 2}"):
            x = F.gelu(x @ weight)
    return x


def entered(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    for number, weight in enumerate(weights):
        gt.signal.enter(f"on{number % 2}")
        x = F.gelu(x @ weight)
        gt.signal.exit(f"on{number % 2}")
    return x


def inner(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    with gt.signal.context("on0"):
        x = F.gelu(x @ weights[0])
        with gt.signal.context("on1"):
            x = F.gelu(x @ weights[1])
        return F.gelu(x @ weights[2])


def constants_first(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    """The first operator of a scope records nothing."""
    for number, weight in enumerate(weights):
        with gt.signal.context(f"on{number % 2}"):
            one = torch.ones(4, 4, device=x.device) * 1.0
            x = F.gelu(x @ (weight * one))
    return x


def recomputed(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    for number, weight in enumerate(weights):
        with gt.signal.context(f"on{number % 2}"):
            x = checkpoint(lambda x, w: F.gelu(x @ w), x, weight, use_reentrant=False)
    return x


def recomputed_whole(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    return checkpoint(blocks, x, weights, use_reentrant=False)


def recomputed_in_a_pass_of_its_own(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    for number, weight in enumerate(weights):
        with gt.signal.context(f"on{number % 2}"):
            x = checkpoint(lambda x, w: F.gelu(x @ w), x, weight, use_reentrant=True)
    return x


class Product(torch.autograd.Function):
    """x @ w, by a formula of the program's."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, *args: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*args)
        return args[0] @ args[1]

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> Weights:
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad


def by_a_function(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    for number, weight in enumerate(weights):
        with gt.signal.context(f"on{number % 2}"):
            x = F.gelu(Product.apply(x, weight))
    return x


def of_layers(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Operators that are one node though PyTorch composes them elsewhere."""
    for number, weight in enumerate(weights):
        with gt.signal.context(f"on{number % 2}"):
            x = F.layer_norm(F.linear(x, weight), (4,)).view(1, 1, 4, 4)
            x = F.scaled_dot_product_attention(x, x, x, is_causal=True).view(4, 4)
    return x


def parts_side_by_side(x: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Micro-batches whose forward passes are all before the first backward pass."""
    return sum(blocks(part, weights).sum() for part in x.chunk(2))


def gradients_of(
    forward: Callable[[torch.Tensor, Weights], torch.Tensor], device: str
) -> tuple[Weights, Weights]:
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(4, 4, generator=generator) for _ in range(4)]
    x, *weights = (one.to(device).requires_grad_() for one in made)
    forward(x, weights).square().sum().backward()
    return [one.grad for one in (x, *weights)], weights


PROGRAMS = [
    blocks,
    entered,
    inner,
    constants_first,
    recomputed,
    recomputed_whole,
    recomputed_in_a_pass_of_its_own,
    by_a_function,
    of_layers,
    parts_side_by_side,
]


@pytest.mark.parametrize("forward", PROGRAMS, ids=lambda one: one.__name__)
def test_a_gradient_is_computed_where_its_operator_was(
    forward: Callable[[torch.Tensor, Weights], torch.Tensor],
) -> None:
    expected, _ = gradients_of(forward, "cpu")
    grads, _ = gradients_of(forward, "mux")
    for grad, other in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad.cpu(), other)
    assert places(grads[1:]) == ["0", "1", "0"]
    assert scopes.current.get() == 0


def places(tensors: Weights) -> list[str]:
    """The worker of each."""
    return [_core.layout(gt.torch.unwrap(one)).split("@[")[1].strip("]") for one in tensors]


def weights_on_mux() -> Weights:
    generator = torch.Generator().manual_seed(2)
    made = [torch.randn(4, 4, generator=generator) for _ in range(4)]
    return [one.to("mux").requires_grad_() for one in made]


def test_gradients_without_accumulation_and_of_gradients_are_computed_there_too() -> None:
    x, *weights = weights_on_mux()
    first = torch.autograd.grad(blocks(x, weights).square().sum(), weights, create_graph=True)
    second = torch.autograd.grad(sum(one.square().sum() for one in first), weights)
    assert places(first) == ["0", "1", "0"]
    assert places(second) == ["0", "1", "0"]


def test_a_scope_of_gradients_holds_in_a_pass() -> None:
    x, weight, *_ = weights_on_mux()
    with gt.signal.context("gradients on 2"):
        y = x @ weight
    with gt.signal.context("on1", backward="on0"):
        z = y * y
    z.sum().backward()
    assert places([y.detach(), z.detach(), weight.grad]) == ["0", "1", "2"]


def test_a_pass_leaves_the_scope_around_it_as_it_is_also_when_it_fails() -> None:
    x, *weights = weights_on_mux()
    loss = blocks(x, weights).sum()
    with gt.signal.context("on2"):
        around = scopes.current.get()
        loss.backward(retain_graph=True)
        assert scopes.current.get() == around
        x.register_hook(lambda grad: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loss.backward()
        assert scopes.current.get() == around
        assert places([torch.ones(2, device="mux") + 1]) == ["2"]


def test_a_thread_keeps_the_latest_changes_of_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_scopes, "CHANGES_MAX", 8)
    x, *weights = weights_on_mux()
    old = blocks(x, weights).sum()
    for _ in range(4):
        latest = blocks(x, weights).sum()
    latest.backward()
    assert places([one.grad for one in weights]) == ["0", "1", "0"]
    old.backward()  # in no scope, and right
    assert torch.isfinite(x.grad.cpu()).all()


def test_a_thread_has_scopes_of_its_own() -> None:
    """Also one that begins when another has ended, whose number it may get."""
    seen = []

    def train() -> None:
        x, *weights = weights_on_mux()
        blocks(x, weights).sum().backward()
        seen.append(places([one.grad for one in weights]))

    for _ in range(3):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    assert seen == [["0", "1", "0"]] * 3
