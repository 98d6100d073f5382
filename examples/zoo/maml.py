"""MAML learns to fit sines in one step: gradients of a loss after a step of gradient descent."""

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from weights import fill


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(1, 32), nn.Linear(32, 32), nn.Linear(32, 1)

    def forward(self, x: torch.Tensor, params: list[torch.Tensor]) -> torch.Tensor:
        x = F.relu(F.linear(x, params[0], params[1]))
        x = F.relu(F.linear(x, params[2], params[3]))
        return F.linear(x, params[4], params[5])


def task(rng: np.random.Generator) -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    amplitude, phase = rng.uniform(0.1, 5.0), rng.uniform(0, math.pi)

    def sample(k: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.FloatTensor(rng.uniform(-5, 5, (k, 1)))
        return x, amplitude * torch.sin(x + phase)

    return sample


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    model = Net()
    fill(model, 1)
    weights = list(model.parameters())
    meta_optimizer = torch.optim.Adam(weights, 1e-3)
    losses: list[float] = []
    for iteration in range(1, steps + 1):
        meta_loss = 0
        for _ in range(4):
            sample = task(rng)
            temp_weights = [w.clone() for w in weights]
            x, y = sample(10)
            loss = F.mse_loss(model(x, temp_weights), y)
            grad = torch.autograd.grad(loss, temp_weights, create_graph=True)
            temp_weights = [w - 0.01 * g for w, g in zip(temp_weights, grad, strict=True)]
            x, y = sample(10)
            meta_loss += F.mse_loss(model(x, temp_weights), y)
        meta_grads = torch.autograd.grad(meta_loss, weights)
        for w, g in zip(weights, meta_grads, strict=True):
            w.grad = g
        meta_optimizer.step()
        losses.append(meta_loss.item() / 4)
        if iteration % 50 == 0:
            print(f"{iteration}/{steps}. loss: {np.mean(losses[-50:]):.4f}")
    return losses


if __name__ == "__main__":
    main()
