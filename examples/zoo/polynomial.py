"""A cubic polynomial fits a sine, with gradients written by hand, then by autograd, then by nn."""

import math

import torch
from torch import nn, optim

START = (0.3, 0.8, -0.2, -0.1)


def by_hand(x: torch.Tensor, y: torch.Tensor, steps: int) -> list[float]:
    """Four scalars, four gradients; the loss is read at every step."""
    a, b, c, d = (torch.tensor(value) for value in START)
    losses: list[float] = []
    for _ in range(steps):
        y_pred = a + b * x + c * x**2 + d * x**3
        losses.append((y_pred - y).pow(2).sum().item())
        grad_y_pred = 2.0 * (y_pred - y)
        a -= 1e-6 * grad_y_pred.sum()
        b -= 1e-6 * (grad_y_pred * x).sum()
        c -= 1e-6 * (grad_y_pred * x**2).sum()
        d -= 1e-6 * (grad_y_pred * x**3).sum()
    return losses


def by_autograd(x: torch.Tensor, y: torch.Tensor, steps: int) -> list[float]:
    """Gradients by backward(), with the update under no_grad."""
    a, b, c, d = (torch.tensor(value, requires_grad=True) for value in START)
    losses: list[float] = []
    for _ in range(steps):
        loss = (a + b * x + c * x**2 + d * x**3 - y).pow(2).sum()
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            for weight in (a, b, c, d):
                weight.sub_(1e-6 * weight.grad)
                weight.grad = None
    return losses


def by_nn(x: torch.Tensor, y: torch.Tensor, steps: int) -> list[float]:
    """A linear layer over the powers, RMSprop."""
    powers = x.unsqueeze(-1).pow(torch.tensor([1, 2, 3]))
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([START[1:]]))
        model[0].bias.fill_(START[0])
    loss_fn = nn.MSELoss(reduction="sum")
    optimizer = optim.RMSprop(model.parameters(), lr=1e-3)
    losses: list[float] = []
    for _ in range(steps):
        loss = loss_fn(model(powers), y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def main(steps: int = 100) -> list[float]:
    x = torch.linspace(-math.pi, math.pi, 2000)
    y = torch.sin(x)
    losses = [loss for fit in (by_hand, by_autograd, by_nn) for loss in fit(x, y, steps)]
    print(f"by hand {losses[steps - 1]:.2f}, by autograd {losses[2 * steps - 1]:.2f}")
    return losses


if __name__ == "__main__":
    main()
