"""A forecaster in the frequency domain: decomposed series, learned weights for the lowest modes."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from weights import fill

LENGTH, AHEAD, WIDTH, HEADS, MODES = 48, 24, 32, 4, 12


class FourierBlock(nn.Module):
    """Multiplies the lowest modes of each head by a complex matrix of their own."""

    def __init__(self) -> None:
        super().__init__()
        part = WIDTH // HEADS
        self.weights = nn.Parameter(torch.zeros(HEADS, part, part, MODES, 2))

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        b, t, h, e = q.shape
        weights = torch.view_as_complex(self.weights)
        x_ft = torch.fft.rfft(q.permute(0, 2, 3, 1), dim=-1)  # [b, h, e, t / 2 + 1]
        out_ft = torch.zeros(b, h, e, t // 2 + 1, dtype=torch.cfloat)
        for mode in range(MODES):
            product = torch.einsum("bhi,hio->bho", x_ft[..., mode], weights[..., mode])
            out_ft[..., mode] = product
        return torch.fft.irfft(out_ft, n=t).permute(0, 3, 1, 2)


def decomposed(x: torch.Tensor, window: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    """Series [b, t, c] without their moving average, and the moving average."""
    front = x[:, :1, :].repeat(1, window // 2, 1)
    end = x[:, -1:, :].repeat(1, window // 2, 1)
    padded = torch.cat([front, x, end], dim=1).permute(0, 2, 1)
    trend = F.avg_pool1d(padded, window, stride=1).permute(0, 2, 1)
    return x - trend, trend


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.attention = FourierBlock()
        self.conv1 = nn.Conv1d(WIDTH, 2 * WIDTH, 1, bias=False)
        self.conv2 = nn.Conv1d(2 * WIDTH, WIDTH, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        mixed = self.attention(self.query(x).view(b, t, HEADS, -1)).reshape(b, t, -1)
        x, _ = decomposed(x + self.out(mixed))
        y = self.conv2(F.gelu(self.conv1(x.transpose(-1, 1)))).transpose(-1, 1)
        return decomposed(x + y)[0]


class Forecaster(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.embed = nn.Linear(channels, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.project = nn.Linear(WIDTH, channels)
        self.ahead = nn.Linear(LENGTH, AHEAD)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        season, trend = decomposed(x)
        hidden = self.embed(season)
        for layer in self.layers:
            hidden = layer(hidden)
        season = self.ahead(self.project(hidden).transpose(1, 2)).transpose(1, 2)
        return season + trend[:, -1:, :]


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    time = np.arange(4000)[:, None]
    periods, phases = np.array([[7.0, 12.0, 24.0]]), rng.uniform(0, 6, (1, 3))
    series = np.sin(2 * np.pi * time / periods + phases) + rng.normal(0, 0.1, (4000, 3))
    series = series.astype(np.float32)
    model = Forecaster(3)
    fill(model, 1)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    losses: list[float] = []
    for _ in range(steps):
        starts = rng.integers(0, 4000 - LENGTH - AHEAD, 16)
        batch = np.stack([series[start : start + LENGTH + AHEAD] for start in starts])
        past, future = torch.from_numpy(batch[:, :LENGTH]), torch.from_numpy(batch[:, LENGTH:])
        optimizer.zero_grad()
        loss = F.mse_loss(model(past), future)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
