"""Models of the usual families in PyTorch, small, for the tests of gt.guava."""

import numpy as np
import torch
from torch import nn

VOCABULARY, WIDTH, HEADS, TOKENS = 20, 12, 3, 6


class Block(nn.Module):
    """A GPT's: attention with a fused projection, then an MLP."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH))

    def forward(self, x):
        q, k, v = (
            one.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for one in self.c_attn(self.norm1(x)).chunk(3, dim=-1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """With positions and a head that is tied to the table."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.h = nn.ModuleList([Block() for _ in range(3)])
        self.norm, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, x):
        x = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.norm(x))


class Gated(nn.Module):
    """A Llama's: projections of their own, a gated MLP, a root-mean-square norm."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.norm = nn.RMSNorm(WIDTH)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, nn.Linear(WIDTH, WIDTH, bias=False))
        self.gate_proj, self.up_proj = nn.Linear(WIDTH, 24), nn.Linear(WIDTH, 24)
        self.down_proj, self.head = nn.Linear(24, WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        x = self.embed_tokens(x)
        y = self.norm(x)
        q, k, v = (
            one(y).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for one in (self.q_proj, self.k_proj, self.v_proj)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.o_proj(y.transpose(1, 2).flatten(-2))
        y = self.norm(x)
        return self.head(
            x + self.down_proj(nn.functional.silu(self.gate_proj(y)) * self.up_proj(y))
        )


class Attention(nn.Module):
    """PyTorch's own attention, with a mask."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.output = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        y = self.embedding(x)
        mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=x.device).triu(1)
        return self.output(self.attention(y, y, y, attn_mask=mask, need_weights=False)[0])


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm = (
            nn.Embedding(VOCABULARY, WIDTH),
            nn.LSTM(WIDTH, 16, batch_first=True),
        )
        self.output = nn.Linear(16, VOCABULARY)

    def forward(self, x):
        return self.output(self.lstm(self.embedding(x))[0])


def convolutional():
    """Images [n, 1, 8, 8] to five classes, with statistics of batches."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 5),
    )


def mixture():
    """Experts of which a gate takes the sum."""

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(64, 3)
            self.experts = nn.ModuleList(
                [nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 5)) for _ in range(3)]
            )

        def forward(self, x):
            x = x.flatten(1)
            shares = self.gate(x).softmax(-1)
            outputs = torch.stack([expert(x) for expert in self.experts], dim=-1)
            return (outputs * shares.unsqueeze(1)).sum(-1)

    return Mixture()


def tokens(batches, size):
    draw = np.random.default_rng(1)
    text = (
        draw.integers(0, VOCABULARY, (batches, size, 1)) + 3 * np.arange(TOKENS + 1)
    ) % VOCABULARY
    return [(rows[:, :-1].copy(), rows[:, 1:].copy()) for rows in text]


def images(batches, size):
    draw = np.random.default_rng(1)
    return [
        (draw.standard_normal((size, 1, 8, 8)).astype(np.float32), draw.integers(0, 5, size))
        for _ in range(batches)
    ]


FAMILIES = {
    "a GPT with tied tables": (Gpt, tokens),
    "gated": (Gated, tokens),
    "PyTorch's attention": (Attention, tokens),
    "recurrent": (Recurrent, tokens),
    "convolutional": (convolutional, images),
    "a mixture of experts": (mixture, images),
}
