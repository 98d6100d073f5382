"""A program: trains an MLP, a CNN and a character GPT a few steps; prints the losses as JSON."""

import json
import sys

import numpy as np

import gt
import gt.nn.functional as F
from gt import nn

STEPS = 12
WORDS, LENGTH, WIDTH = 30, 12, 32


class Block(nn.Module):
    """Attention and an MLP, each behind a layer norm."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.attend(self.first(x)).view(batch, length, 3, 4, WIDTH // 4)
        queries, keys, values = heads.permute(2, 0, 3, 1, 4).unbind(0)
        found = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.join(found.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    """Two blocks over characters."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        x = self.words(x) + self.places(gt.arange(LENGTH))
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


def losses(model, inputs, targets, optimizer, random):
    """Loss of each step, from parameters that are the same under every backend."""
    with gt.no_grad():
        for parameter in model.parameters():
            values = random.standard_normal(parameter.shape).astype(np.float32)
            parameter.copy_(gt.tensor(values * np.float32(0.1)))
    kept = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        kept.append(loss)
    return [loss.item() for loss in kept]


def main():
    random = np.random.default_rng(0)
    numbers = lambda *size: gt.tensor(random.standard_normal(size).astype(np.float32))  # noqa: E731
    classes = lambda count: gt.tensor(random.integers(0, 10, count))  # noqa: E731
    mlp = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    cnn = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, stride=2, groups=2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(32, 10),
    )  # fmt: skip
    gpt = Gpt()
    sgd = gt.optim.SGD(mlp.parameters(), lr=0.1, momentum=0.9)
    adam, adamw = gt.optim.Adam(cnn.parameters(), lr=1e-2), gt.optim.AdamW(gpt.parameters())
    text = random.integers(0, WORDS, (4, LENGTH + 1))
    inputs, targets = gt.tensor(text[:, :-1].copy()), gt.tensor(text[:, 1:].copy()).flatten()
    found = {
        "mlp": losses(mlp, numbers(16, 64), classes(16), sgd, random),
        "cnn": losses(cnn, numbers(4, 1, 20, 20), classes(4), adam, random),
        "gpt": losses(gpt, inputs, targets, adamw, random),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
