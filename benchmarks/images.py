"""Rows on images: a training step of a small convolutional network, and of convolutions alone."""

from __future__ import annotations

from types import ModuleType

import torch
from pairs import Row, Target
from training import Step, sides

import gt
import gt.nn.functional
import gt.optim

BATCH = 64
SEED = 0


def _network(lib: ModuleType, optimizer: str) -> Step:
    """28 x 28 pictures of ten kinds through two convolutions with pooling and a linear layer."""
    nn = lib.nn
    lib.manual_seed(SEED)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),  # -> [b, 16, 14, 14]
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),  # -> [b, 32, 7, 7]
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip
    update = getattr(lib.optim, optimizer)(model.parameters(), lr=1e-3)
    images, labels = lib.randn(BATCH, 1, 28, 28), lib.arange(BATCH) % 10

    def step() -> gt.Tensor | torch.Tensor:
        update.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        update.step()
        return loss

    return step


def _residual(lib: ModuleType) -> Step:
    """Convolutions with batch normalization and a sum, as in a residual network."""
    nn = lib.nn
    lib.manual_seed(SEED)
    layers = nn.Sequential(
        nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16),
    )  # fmt: skip
    images = lib.randn(BATCH, 16, 14, 14).requires_grad_()

    def step() -> gt.Tensor | torch.Tensor:
        layers.zero_grad()
        total = (layers(images) + images).relu().sum()
        total.backward()
        return total

    return step


def _convolutions(lib: ModuleType) -> Step:
    """Four convolutions one after the other, forward and backward."""
    nn = lib.nn
    lib.manual_seed(SEED)
    layers = nn.Sequential(*(nn.Conv2d(16, 16, 3, padding=1) for _ in range(4)))
    images = lib.randn(BATCH, 16, 14, 14)

    def step() -> gt.Tensor | torch.Tensor:
        layers.zero_grad()
        total = layers(images).sum()
        total.backward()
        return total

    return step


ROWS = [
    Row(
        "cnn-sgd",
        "two convolutions, pools and a linear layer, batch 64 of 28 x 28, SGD step",
        "ms",
        Target("ratio", 1.1),
        lambda: sides(lambda lib: _network(lib, "SGD"), 10, 1e-3),
    ),
    Row(
        "cnn-adam",
        "the same, Adam step",
        "ms",
        Target("ratio", 1.1),
        lambda: sides(lambda lib: _network(lib, "Adam"), 10, 1e-3),
    ),
    Row(
        "convolutions",
        "four convolutions of 16 channels, 14 x 14, forward and backward",
        "ms",
        Target("ratio", 1.1),
        lambda: sides(_convolutions, 10, 1e-3),
    ),
    Row(
        "residual",
        "a residual block with batch norm, the same sizes",
        "ms",
        Target("ratio", 1.1),
        lambda: sides(_residual, 10, 1e-3),
    ),
]
