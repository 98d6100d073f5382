"""Super-resolution by sub-pixel convolution: pictures of half the size, made whole again."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.nn import init
from torch.utils.data import DataLoader, TensorDataset
from weights import fill


class Net(nn.Module):
    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 16, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(16, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        self._initialize_weights()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.conv1(x))  # [b, 1, 8, 8] -> [b, 16, 8, 8]
        x = self.relu(self.conv2(x))
        return self.pixel_shuffle(self.conv3(x))  # -> [b, 4, 8, 8] -> [b, 1, 16, 16]

    def _initialize_weights(self) -> None:
        init.orthogonal_(self.conv1.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv2.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv3.weight)


def waves(count: int, rng: np.random.Generator) -> np.ndarray:
    """Smooth pictures [count, 1, 16, 16] in [0, 1]."""
    rows, columns = np.mgrid[0:16, 0:16]
    a, b, phase = rng.uniform(-0.7, 0.7, (3, count, 1, 1))
    return (0.5 + 0.5 * np.sin(a * rows + b * columns + 4 * phase)).astype(np.float32)[:, None]


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, criterion: nn.Module) -> float:
    avg_psnr = 0.0
    for inputs, target in loader:
        mse = criterion(model(inputs), target)
        avg_psnr += 10 * math.log10(1 / mse.item())
    return avg_psnr / len(loader)


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    target = torch.from_numpy(waves(160, rng))
    small = F.interpolate(target, scale_factor=0.5, mode="bilinear", align_corners=False)
    loader = DataLoader(TensorDataset(small, target), batch_size=16, shuffle=False)
    model = Net(upscale_factor=2)
    fill(model, 1)
    criterion = nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=2)
    losses: list[float] = []
    while len(losses) < steps:
        epoch_loss = 0.0
        for inputs, wanted in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), wanted)
            epoch_loss += loss.item()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
        scheduler.step(epoch_loss)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"PSNR {evaluate(model, loader, criterion):.2f} dB")
    return losses


if __name__ == "__main__":
    main()
