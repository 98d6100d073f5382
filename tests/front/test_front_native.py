"""The device `mux` on workers without PyTorch, and on several that have parts of a batch."""

import itertools
from typing import Any

import torch
from test_front_training import OPTIMIZERS, compare, encoder, gpt, perceptron, recurrent
from torch import nn
from torch.nn import functional as F
from torch_session import torch_workers

import gt
import gt.torch


def test_models_train_without_pytorch_on_the_worker() -> None:
    with torch_workers(1, GT_BACKEND="native"):
        for program in (perceptron, gpt, recurrent, encoder):
            compare(program, OPTIMIZERS["adamw"])


def test_norms_and_softmax_without_pytorch_on_the_worker() -> None:
    def program(device: str) -> list[torch.Tensor]:
        x = torch.tensor([[1.0, -2.0, 3.0], [0.0, 0.5, -0.5]], device=device, requires_grad=True)
        mask = torch.tensor([[True, False, True], [False, False, False]], device=device)
        norms = [torch.linalg.vector_norm(x, dim=dim) for dim in (None, 0, -1)]
        found = [*norms, torch._safe_softmax(x.masked_fill(~mask, -torch.inf), -1)]
        (gradient,) = torch.autograd.grad(sum(y.sum() for y in norms), x)
        return [y.detach().cpu() for y in (*found, gradient)]

    with torch_workers(1, GT_BACKEND="native"):
        torch.testing.assert_close(program("mux"), program("cpu"))


def test_products_and_attention_of_a_cut_batch() -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(4, 4, 6, 8), torch.randn(8, 8), torch.randn(8)
    given = (torch.rand(6, 6) > 0.3) | torch.eye(6).bool()

    def program(x: torch.Tensor, device: str, mask: torch.Tensor | None, is_causal: bool) -> Any:
        leaves = [x.detach().requires_grad_()]
        leaves += [w.to(device).requires_grad_() for w in (weight, bias)]
        q = F.linear(*leaves)
        there = None if mask is None else mask.to(device)
        y = F.scaled_dot_product_attention(q, q.tanh(), q.sin(), there, is_causal=is_causal)
        y = y @ leaves[1]
        gradients = torch.autograd.grad(y.square().sum(), leaves)
        return [z.detach().cpu() for z in (y, *gradients)]

    with torch_workers(2):
        for dim, form in itertools.product(
            (0, 1, 2, None), ((None, False), (None, True), (given, False))
        ):
            value = gt.from_torch(x)
            there = gt.torch.wrap(value if dim is None else gt.distribute(value, dim=dim))
            seen, expected = program(there, "mux", *form), program(x, "cpu", *form)
            torch.testing.assert_close(seen, expected, rtol=1e-4, atol=1e-4)


def test_an_optimizer_steps_where_parameters_are_cut() -> None:
    def program(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        tensor, x = torch.randn(4, 6), torch.randn(3, 6).to(device)
        if device == "mux":
            tensor = gt.torch.wrap(gt.distribute(gt.from_torch(tensor), dim=0))
        weight = nn.Parameter(tensor)
        for optimizer in (
            torch.optim.AdamW([weight], lr=0.1),
            torch.optim.AdamW([weight], lr=0.1, fused=True),
            torch.optim.SGD([weight], lr=0.01, momentum=0.9),
        ):
            for _ in range(3):
                optimizer.zero_grad()
                F.linear(x, weight).square().sum().backward()
                optimizer.step()
        return [weight.detach().cpu()]

    with torch_workers(2):
        torch.testing.assert_close(program("mux"), program("cpu"), rtol=1e-4, atol=1e-5)
