"""L-BFGS fits a small network to a curve: closures, line search, whole data in every step."""

import numpy as np
import torch
from torch import nn
from weights import fill


class Curve(nn.Module):
    """Numbers [n, 1] to numbers [n, 1]."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


def damped_wave(count: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Places in [-2, 2] and the noisy curve there."""
    x = np.sort(rng.uniform(-2, 2, (count, 1)), axis=0)
    y = np.exp(-(x**2) / 2) * np.sin(3 * x) + rng.normal(0, 0.05, (count, 1))
    return torch.from_numpy(x), torch.from_numpy(y)


def fit(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int, line_search: str | None
) -> list[float]:
    """The loss at the beginning of each step."""
    criterion = nn.MSELoss()
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=0.1, max_iter=2, history_size=6, line_search_fn=line_search
    )
    losses: list[float] = []

    for _ in range(steps):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            return loss

        losses.append(optimizer.step(closure).item())
    return losses


def main(steps: int = 100) -> list[float]:
    x, y = damped_wave(64, np.random.default_rng(0))
    losses: list[float] = []
    searches = {None: steps // 2, "strong_wolfe": steps - steps // 2}
    for seed, (line_search, count) in enumerate(searches.items()):
        model = Curve().double()  # the search's decisions are not to hang on the last bit
        fill(model, seed)
        losses += fit(model, x, y, count, line_search)
        with torch.no_grad():
            worst = (model(x) - y).abs().max().item()
        print(f"line search {line_search}: loss {losses[-1]:.5f}, worst error {worst:.3f}")
    return losses


if __name__ == "__main__":
    main()
