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
CHARACTERS, GPT_WIDTH, GPT_HEADS, SEED = 65, 64, 4, 0
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
        # Each library drops other elements, so values are not compared; only time counts.
        return loss if not dropout_p else loss.detach() * 0

    return step


def _gpt(lib: ModuleType, batch: int, context: int) -> Step:
    """Two layers of 64, AdamW: many small operators."""
    nn, functional = lib.nn, lib.nn.functional

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(GPT_WIDTH) for _ in range(2))
            self.query_key_value = nn.Linear(GPT_WIDTH, 3 * GPT_WIDTH)
            self.out = nn.Linear(GPT_WIDTH, GPT_WIDTH)
            self.wide = nn.Linear(GPT_WIDTH, 4 * GPT_WIDTH)
            self.narrow = nn.Linear(4 * GPT_WIDTH, GPT_WIDTH)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            heads = self.query_key_value(self.norms[0](x)).view(b, t, 3, GPT_HEADS, -1)
            q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)  # [b, h, t, c / h]
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(b, t, c))
            return x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))

    lib.manual_seed(SEED)
    letters, places = nn.Embedding(CHARACTERS, GPT_WIDTH), nn.Embedding(context, GPT_WIDTH)
    blocks = nn.Sequential(Block(), Block(), nn.LayerNorm(GPT_WIDTH))
    head = nn.Linear(GPT_WIDTH, CHARACTERS, bias=False)
    model = nn.ModuleList([letters, places, blocks, head])
    update = lib.optim.AdamW(model.parameters(), lr=1e-3)
    text = lib.arange(batch * (context + 1)).view(batch, -1) * 7 % CHARACTERS
    x, y, where = text[:, :-1], text[:, 1:].reshape(-1), lib.arange(context)

    def step() -> gt.Tensor | torch.Tensor:
        update.zero_grad()
        logits = head(blocks(letters(x) + places(where)))
        loss = functional.cross_entropy(logits.view(-1, CHARACTERS), y)
        loss.backward()
        update.step()
        return loss

    return step


ROWS = [
    Row(
        "gpt",
        "character GPT, 2 layers of 64, 6 x 12 characters, AdamW step",
        "ms",
        Target("ratio", 0.5),
        lambda: sides(lambda lib: _gpt(lib, 6, 12), 20, 1e-3),
    ),
    Row(
        "gpt-256",
        "the same, 8 x 32 characters",
        "ms",
        Target("ratio", 0.7),
        lambda: sides(lambda lib: _gpt(lib, 8, 32), 20, 1e-3),
    ),
    Row(
        "lstm",
        "two-layer LSTM step, length 64, batch 8, width 32",
        "ms",
        Target("ratio", 0.5),
        lambda: sides(_recurrent("LSTM"), 20, 1e-3),
    ),
    Row(
        "lstm-both",
        "the same, bidirectional",
        "ms",
        Target("ratio", 0.8),
        lambda: sides(_recurrent("LSTM", bidirectional=True), 20, 1e-3),
    ),
    Row(
        "gru",
        "the same of GRU",
        "ms",
        Target("ratio", 0.8),
        lambda: sides(_recurrent("GRU"), 20, 1e-3),
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
