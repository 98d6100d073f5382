"""Rows on sequences: steps of recurrent layers, and attention, forward and backward."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from pairs import Row, Target
from training import Step, sides

import gt

LENGTH, BATCH, WIDTH = 64, 8, 32
HEADS = (1, 12, 1024, 64)  # batch, heads, positions, width of a head


def _recurrent(name: str, *, bidirectional: bool = False) -> Any:
    def make(lib: ModuleType) -> Step:
        layers = getattr(lib.nn, name)(WIDTH, WIDTH, 2, bidirectional=bidirectional)
        x = lib.from_numpy(torch.linspace(-1, 1, LENGTH * BATCH * WIDTH).numpy())
        x = x.reshape(LENGTH, BATCH, WIDTH)

        def step() -> gt.Tensor | torch.Tensor:
            layers.zero_grad()
            loss = layers(x)[0].square().mean()
            loss.backward()
            return loss

        return step

    return make


def _attention(lib: ModuleType, dropout_p: float = 0.0) -> Step:
    leaves = [lib.randn(*HEADS).requires_grad_() for _ in range(3)]

    def step() -> gt.Tensor | torch.Tensor:
        for leaf in leaves:
            leaf.grad = None
        attend = lib.nn.functional.scaled_dot_product_attention
        loss = attend(*leaves, dropout_p=dropout_p, is_causal=True).mean()
        loss.backward()
        # The values are another matter than the time: what is dropped is drawn by each.
        return loss if not dropout_p else loss.detach() * 0

    return step


ROWS = [
    Row(
        "lstm",
        "two-layer LSTM step, length 64, batch 8, width 32",
        "ms",
        Target("ratio", 0.8),
        lambda: sides(_recurrent("LSTM"), 5, 1e-3),
    ),
    Row(
        "lstm-both",
        "the same, bidirectional",
        "ms",
        Target("ratio", 0.8),
        lambda: sides(_recurrent("LSTM", bidirectional=True), 5, 1e-3),
    ),
    Row(
        "gru",
        "the same of GRU",
        "ms",
        Target("ratio", 0.8),
        lambda: sides(_recurrent("GRU"), 5, 1e-3),
    ),
    Row(
        "attention",
        "causal attention, 12 heads x 1,024 x 64, forward and backward",
        "ms",
        Target("ratio", 0.8),
        lambda: sides(_attention, 1, 1e-3),
        rounds=7,
    ),
    Row(
        "attention-dropout",
        "the same, a tenth of the weights dropped",
        "ms",
        Target("ratio", 0.8),
        lambda: sides(functools.partial(_attention, dropout_p=0.1), 1, 1e-3),
        rounds=7,
    ),
]
