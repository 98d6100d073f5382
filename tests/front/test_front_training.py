"""Training loops of PyTorch's own modules and optimizers on the device `mux`, beside local ones."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from front_paths import front_path  # noqa: F401 - runs each test in both ways
from torch import nn
from torch.nn import functional as F
from torch_session import torch_workers

import gt
import gt.torch

STEPS = 4
TOLERANCE = 1e-6


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


class Block(nn.Module):
    """A transformer's block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        parts = self.qkv(self.first(x)).split(d, dim=2)
        q, k, v = (x.view(b, t, self.heads, d // self.heads).transpose(1, 2) for x in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [b, h, t, k]
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, d))
        return x + self.mlp(self.second(x))


class Gpt(nn.Module):
    """A language model whose head is tied to its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(65, 32), nn.Embedding(16, 32)
        self.blocks = nn.ModuleList(Block(32, 4) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 65, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).flatten(0, 1)


def perceptron() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.randn(32, 8), torch.randint(0, 4, (32,))


def gpt() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return Gpt(), torch.randint(0, 65, (4, 16)), torch.randint(0, 65, (64,))


def image_classifier() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.Tanh(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    return model, torch.randn(4, 3, 12, 12), torch.randint(0, 5, (4,))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(6, 8, num_layers=2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def recurrent() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return Recurrent(), torch.randn(4, 5, 6), torch.randint(0, 3, (4,))


def encoder() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(64, 3))
    return model, torch.randn(5, 4, 16), torch.randint(0, 3, (5,))


PROGRAMS = (perceptron, gpt, image_classifier, recurrent, encoder)
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, nesterov=True),
    "adam, one by one": lambda parameters: torch.optim.Adam(parameters, lr=1e-2, foreach=False),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3, momentum=0.5),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=1e-2),
    "radam": lambda parameters: torch.optim.RAdam(parameters, lr=1e-2),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=1e-2),
    "lbfgs": lambda parameters: torch.optim.LBFGS(parameters, lr=0.1, max_iter=3),
}


def losses(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: torch.Tensor,
    targets: torch.Tensor,
) -> list[float]:
    """The loss of each step, as a program writes it."""
    seen: list[float] = []

    def closure() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        seen.append(loss.item())
        return seen[-1]

    for _ in range(STEPS):
        optimizer.step(closure)
    return seen


def compare(
    program: Callable[[], tuple[nn.Module, torch.Tensor, torch.Tensor]],
    chosen: Callable[[Any], torch.optim.Optimizer],
) -> None:
    torch.manual_seed(0)
    model, inputs, targets = program()
    remote = copy.deepcopy(model).to("mux")
    expected = losses(model, chosen(model.parameters()), inputs, targets)
    seen = losses(remote, chosen(remote.parameters()), inputs.to("mux"), targets.to("mux"))
    torch.testing.assert_close(seen, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_model_trains_as_locally(program: Any) -> None:
    compare(program, OPTIMIZERS["adamw"])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_steps_as_locally(name: str) -> None:
    compare(perceptron, OPTIMIZERS[name])


def test_tensors_of_both_are_one() -> None:
    ours = gt.tensor([1.0, 2.0, 3.0])
    theirs = gt.torch.wrap(ours)
    theirs.mul_(2)
    assert ours.tolist() == [2.0, 4.0, 6.0]
    ours[0] = 7.0
    assert theirs.tolist() == [7.0, 4.0, 6.0]
    assert gt.torch.unwrap(theirs) is ours
    with pytest.raises(TypeError, match="expected a tensor of mux"):
        gt.torch.unwrap(torch.ones(2))
    with pytest.raises(TypeError, match=r"expected gt\.Tensor"):
        gt.torch.wrap(torch.ones(2))  # type: ignore[arg-type]
