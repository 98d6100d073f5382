"""Models and batches for the tests of gt.guava, written once for `gt` and `torch`; and the plain
loop in PyTorch that every run is compared with."""

import numpy as np
import torch

VOCABULARY, WIDTH, HEADS, TOKENS = 24, 16, 2, 8


def classifier(lib):
    """A perceptron of four layers: [n, 8] to scores [n, 5]."""
    nn = lib.nn
    return nn.Sequential(
        nn.Linear(8, 32),
        nn.GELU(),
        nn.Linear(32, 8),
        nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 5)),
    )


def transformer(lib, *, layers=2, dropout=0.0):
    """Tokens [b, t] to scores [b, t, v], by the modules that the library has for it."""
    nn = lib.nn

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, WIDTH)
            layer = nn.TransformerEncoderLayer(
                WIDTH, HEADS, dim_feedforward=32, dropout=dropout, batch_first=True
            )
            self.transformer = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.output = nn.Linear(WIDTH, VOCABULARY)

        def forward(self, x):
            return self.output(self.transformer(self.embedding(x)))

    return Transformer()


def points(batches, size, seed=0):
    """Batches for the classifier."""
    draw = np.random.default_rng(seed)
    return [
        (draw.standard_normal((size, 8)).astype(np.float32), draw.integers(0, 5, size))
        for _ in range(batches)
    ]


def tokens(batches, size, seed=0):
    """Batches for the transformer: text of which each token follows from the one before."""
    draw = np.random.default_rng(seed)
    starts = draw.integers(0, VOCABULARY, (batches, size, 1))
    text = (starts + 5 * np.arange(TOKENS + 1)) % VOCABULARY
    return [(rows[:, :-1].copy(), rows[:, 1:].copy()) for rows in text]


def same_weights(model, lib):
    """Weights of a PyTorch model as tensors of `lib`, for the same model there."""
    return {name: lib.tensor(value.numpy()) for name, value in model.state_dict().items()}


def plain_losses(model, batches, epochs, count, *, lr=1e-2, weight_decay=0.01, limit=1.0):
    """The losses of the loop that a PyTorch user writes, whose step takes `count` batches."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
    losses = []
    for _ in range(epochs):
        for start in range(0, len(batches), count):
            inputs, targets = zip(*batches[start : start + count], strict=True)
            x, y = (
                torch.from_numpy(np.concatenate(inputs)),
                torch.from_numpy(np.concatenate(targets)),
            )
            scores = model(x)
            loss = torch.nn.functional.cross_entropy(
                scores.reshape(-1, scores.shape[-1]), y.flatten()
            )
            optimizer.zero_grad()
            loss.backward()
            if limit is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
            optimizer.step()
            losses.append(loss.item())
    return losses
