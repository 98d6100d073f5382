"""Handwritten digits, trained data-parallel: batches are cut over the workers, the model is not.

The data are the 1,797 scans of 8 by 8 points that scikit-learn ships; a stratified quarter is
held out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import gt
from gt import nn

Array = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

BATCH = 64  # scans a step, over all workers
EPOCHS = 60
SIDE = 8  # points


@dataclass(frozen=True)
class Digits:
    """Scans [n, 64] of points from 0 to 1, and which digit each is [n]."""

    train_scans: Array
    train_labels: Labels
    held_out_scans: Array
    held_out_labels: Labels


@dataclass(frozen=True)
class Result:
    """Results of a training run."""

    losses: list[float]  # of each step
    accuracy: float  # on the held-out quarter, 0 to 1
    held_out: int  # scans
    seconds: float


def load(seed: int) -> Digits:
    """The scans; the seed chooses which quarter is held out, evenly over the ten digits."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    scans, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (scans / 16).astype(np.float32),
        labels.astype(np.int64),
        test_size=0.25,
        stratify=labels,
        random_state=seed,
    )
    return Digits(parts[0], parts[2], parts[1], parts[3])


def model() -> nn.Module:
    """Scans [n, 64] to scores [n, 10]."""
    return nn.Sequential(
        nn.Linear(SIDE * SIDE, 256),
        nn.GELU(),
        nn.Dropout(0.2),
        nn.Linear(256, 128),
        nn.GELU(),
        nn.Linear(128, 10),
    )


def train(digits: Digits, *, seed: int, epochs: int = EPOCHS, show_progress: bool = True) -> Result:
    """Train on the scans, each batch cut over the workers, and measure on the held-out ones."""
    from tqdm import tqdm

    gt.manual_seed(seed)
    net = model()
    optimizer = gt.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=0.05)
    steps = epochs * (len(digits.train_labels) // BATCH)
    schedule = gt.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    losses: list[gt.Tensor] = []
    start = time.perf_counter()
    batches = _batches(digits, np.random.default_rng(seed), epochs)
    for scans, labels in tqdm(batches, total=steps, desc="digits", disable=not show_progress):
        x = gt.distribute(gt.tensor(scans), dim=0)  # [64, 64], half of the scans on each worker
        y = gt.distribute(gt.tensor(labels), dim=0)
        loss = nn.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()  # the gradients of the halves are added up between the workers
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())  # read at the end: nothing waits in the loop
    curve = [loss.item() for loss in losses]
    seconds = time.perf_counter() - start
    accuracy = measure(net, digits.held_out_scans, digits.held_out_labels)
    return Result(curve, accuracy, len(digits.held_out_labels), seconds)


def measure(net: nn.Module, scans: Array, labels: Labels) -> float:
    """The share of scans whose digit has the highest score."""
    net.eval()
    with gt.no_grad():
        classes = net(gt.distribute(gt.tensor(scans), dim=0)).argmax(dim=1)
    return float((classes.numpy() == labels).mean())


def _batches(
    digits: Digits, generator: np.random.Generator, epochs: int
) -> Iterator[tuple[Array, Labels]]:
    """Shuffled batches; each scan is moved by up to one point, so that the model learns shapes."""
    for _ in range(epochs):
        order = generator.permutation(len(digits.train_labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            yield _moved(digits.train_scans[chosen], generator), digits.train_labels[chosen]


def _moved(scans: Array, generator: np.random.Generator) -> Array:
    images = np.pad(scans.reshape(-1, SIDE, SIDE), ((0, 0), (1, 1), (1, 1)))
    down, right = generator.choice([0, 1, 2], p=[0.1, 0.8, 0.1], size=(2, len(scans)))
    rows = down[:, None, None] + np.arange(SIDE)[:, None]
    columns = right[:, None, None] + np.arange(SIDE)
    moved: Array = images[np.arange(len(scans))[:, None, None], rows, columns]
    return moved.reshape(len(scans), -1)
