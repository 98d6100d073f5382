"""A small network learns two spirals apart, and is saved and loaded again."""

import math
import tempfile
from pathlib import Path

import gt
from gt import nn


def spirals(count: int) -> tuple[gt.Tensor, gt.Tensor]:
    """Points [2 * count, 2] on two spirals, and which spiral each is on [2 * count]."""
    angle = gt.linspace(0.5, 3 * math.pi, count)
    arms = [
        gt.stack([angle * (angle + turn).cos(), angle * (angle + turn).sin()], dim=1) / 10
        for turn in (0.0, math.pi)
    ]
    points = gt.cat(arms) + 0.02 * gt.randn(2 * count, 2)
    labels = gt.cat([gt.zeros(count, dtype=gt.int64), gt.ones(count, dtype=gt.int64)])
    return points, labels


def main() -> None:
    gt.manual_seed(0)
    points, labels = spirals(200)
    model = nn.Sequential(
        nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
    )
    optimizer = gt.optim.Adam(model.parameters(), lr=0.01)
    for step in range(401):
        loss = nn.cross_entropy(model(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            right = (model(points).argmax(dim=1) == labels).float().mean()
            print(f"step {step:3}   loss {loss.item():.4f}   right {right.item():.1%}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spirals.safetensors"
        gt.save(model.state_dict(), path)
        model.load_state_dict(gt.load(path))
    assert right.item() > 0.99, f"only {right.item():.1%} right"


if __name__ == "__main__":
    main()
