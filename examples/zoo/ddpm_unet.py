"""A denoising diffusion model of rings: a U-Net with time embedding predicts the noise."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from weights import fill

TIMESTEPS = 50


def rings(count: int, rng: np.random.Generator) -> np.ndarray:
    """Pictures [count, 1, 16, 16] of a ring each, in [-1, 1]."""
    rows, columns = np.mgrid[0:16, 0:16]
    centers, radius = rng.uniform(6, 10, (count, 2, 1, 1)), rng.uniform(3, 5, (count, 1, 1))
    distance = np.hypot(rows - centers[:, 0], columns - centers[:, 1])
    return (2 * np.exp(-((distance - radius) ** 2)) - 1).astype(np.float32)[:, None]


class SinusoidalPositionEmbeddings(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, time: torch.Tensor) -> torch.Tensor:
        half = self.dim // 2
        scale = math.log(10000) / (half - 1)
        embeddings = torch.exp(torch.arange(half, device=time.device) * -scale)
        embeddings = time[:, None] * embeddings[None, :]
        return torch.cat((embeddings.sin(), embeddings.cos()), dim=-1)  # [b] -> [b, d]


class Block(nn.Module):
    def __init__(self, in_ch: int, out_ch: int, time_dim: int) -> None:
        super().__init__()
        self.time_mlp = nn.Linear(time_dim, out_ch)
        self.conv1 = nn.Conv2d(in_ch, out_ch, 3, padding=1)
        self.conv2 = nn.Conv2d(out_ch, out_ch, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(4, out_ch), nn.GroupNorm(4, out_ch)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = F.silu(self.norm1(self.conv1(x)))
        h = h + self.time_mlp(F.silu(t))[(...,) + (None,) * 2]
        return F.silu(self.norm2(self.conv2(h)))


class UNet(nn.Module):
    def __init__(self, time_dim: int = 16) -> None:
        super().__init__()
        self.time = nn.Sequential(
            SinusoidalPositionEmbeddings(time_dim), nn.Linear(time_dim, time_dim), nn.SiLU()
        )
        self.down1, self.down2 = Block(1, 8, time_dim), Block(8, 16, time_dim)
        self.pool = nn.MaxPool2d(2)
        self.middle = Block(16, 16, time_dim)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.up2, self.up1 = Block(32, 8, time_dim), Block(16, 8, time_dim)
        self.output = nn.Conv2d(8, 1, 1)

    def forward(self, x: torch.Tensor, timestep: torch.Tensor) -> torch.Tensor:
        t = self.time(timestep)
        d1 = self.down1(x, t)  # [b, 8, 16, 16]
        d2 = self.down2(self.pool(d1), t)  # [b, 16, 8, 8]
        m = self.middle(self.pool(d2), t)  # [b, 16, 4, 4]
        u2 = self.up2(torch.cat([self.up(m), d2], dim=1), t)
        u1 = self.up1(torch.cat([self.up(u2), d1], dim=1), t)
        return self.output(u1)


def extract(a: torch.Tensor, t: torch.Tensor, x_shape: torch.Size) -> torch.Tensor:
    out = a.gather(-1, t)
    return out.reshape(t.shape[0], *((1,) * (len(x_shape) - 1)))


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    betas = torch.linspace(0.0001, 0.1, TIMESTEPS)
    alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
    model = UNet()
    fill(model, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses: list[float] = []
    for step in range(steps):
        x = torch.from_numpy(rings(8, rng))
        t = torch.from_numpy(rng.integers(0, TIMESTEPS, 8)).long()
        noise = torch.from_numpy(rng.standard_normal((8, 1, 16, 16), dtype=np.float32))
        x_noisy = (
            extract(alphas_cumprod.sqrt(), t, x.shape) * x
            + extract(torch.sqrt(1.0 - alphas_cumprod), t, x.shape) * noise
        )
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(noise, model(x_noisy, t))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step} loss {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
