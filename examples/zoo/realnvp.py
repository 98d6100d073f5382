"""RealNVP: affine coupling layers with alternating masks turn two moons into a Gaussian."""

from collections.abc import Callable

import numpy as np
import torch
from torch import distributions, nn
from weights import fill


def moons(rng: np.random.Generator, count: int) -> np.ndarray:
    angle, upper = rng.uniform(0, np.pi, count), rng.random(count) < 0.5
    x = np.where(upper, np.cos(angle), 1 - np.cos(angle))
    y = np.where(upper, np.sin(angle), 0.5 - np.sin(angle))
    return (np.stack([x, y], 1) + rng.normal(0, 0.05, (count, 2))).astype(np.float32)


class RealNVP(nn.Module):
    def __init__(
        self,
        nets: Callable[[], nn.Module],
        nett: Callable[[], nn.Module],
        mask: torch.Tensor,
        prior: distributions.Distribution,
    ) -> None:
        super().__init__()
        self.prior = prior
        self.mask = nn.Parameter(mask, requires_grad=False)
        self.t = torch.nn.ModuleList([nett() for _ in range(len(mask))])
        self.s = torch.nn.ModuleList([nets() for _ in range(len(mask))])

    def f(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_det_J, z = x.new_zeros(x.shape[0]), x  # noqa: N806
        for i in reversed(range(len(self.t))):
            z_ = self.mask[i] * z
            s = self.s[i](z_) * (1 - self.mask[i])
            t = self.t[i](z_) * (1 - self.mask[i])
            z = (1 - self.mask[i]) * (z - t) * torch.exp(-s) + z_
            log_det_J -= s.sum(dim=1)  # noqa: N806
        return z, log_det_J

    def log_prob(self, x: torch.Tensor) -> torch.Tensor:
        z, logp = self.f(x)
        return self.prior.log_prob(z) + logp


def nets() -> nn.Module:
    return nn.Sequential(
        nn.Linear(2, 32),
        nn.LeakyReLU(),
        nn.Linear(32, 32),
        nn.LeakyReLU(),
        nn.Linear(32, 2),
        nn.Tanh(),
    )


def nett() -> nn.Module:
    return nn.Sequential(
        nn.Linear(2, 32), nn.LeakyReLU(), nn.Linear(32, 32), nn.LeakyReLU(), nn.Linear(32, 2)
    )


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    masks = torch.from_numpy(np.array([[0, 1], [1, 0]] * 3).astype(np.float32))
    prior = distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    flow = RealNVP(nets, nett, masks, prior)
    fill_networks(flow)
    optimizer = torch.optim.Adam([p for p in flow.parameters() if p.requires_grad], lr=1e-4)
    losses: list[float] = []
    for t in range(steps):
        loss = -flow.log_prob(torch.from_numpy(moons(rng, 100))).mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss.item())
        if t % 50 == 0:
            print(f"iter {t}:", f"loss = {losses[-1]:.3f}")
    return losses


def fill_networks(flow: RealNVP) -> None:
    """Draws the parameters of the networks; the masks stay."""
    fill(flow.t, 1)
    fill(flow.s, 2)


if __name__ == "__main__":
    main()
