"""A few steps of a small model whose every large operator has a CUDA kernel of GT's own."""

from __future__ import annotations

import gt
from gt import nn
from gt.nn import functional

POSITIONS, WIDTH, HEADS, CLASSES = 12, 32, 2, 16


class Block(nn.Module):
    """Attention and a wider layer, each behind a norm, and scores."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.packed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.scores = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        batch = x.shape[0]
        parts = self.packed(self.before(x)).reshape(batch, POSITIONS, 3, HEADS, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)  # [b, h, t, k]
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, POSITIONS, WIDTH))
        return self.scores(functional.gelu(self.up(self.between(x))))


def train(steps: int = 3, device: str = "cpu") -> list[float]:
    """The losses; products and attention in bfloat16, norms, losses and updates in float32.

    Args:
        steps: How many.
        device: Whose rules of autocast hold.
    """
    gt.manual_seed(5)
    model = Block()
    optimizer = gt.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    x, targets = gt.randn(2, POSITIONS, WIDTH), gt.arange(2 * POSITIONS) % CLASSES
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with gt.autocast(device, dtype=gt.bfloat16):
            scores = model(x).float()
        loss = functional.cross_entropy(scores.reshape(-1, CLASSES), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
