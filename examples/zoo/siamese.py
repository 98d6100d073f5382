"""A Siamese network with contrastive loss: are two signals of the same kind?"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from weights import fill


def signals(kinds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Waves [n, 1, 32] of one frequency a kind, any phase, with noise."""
    time = np.arange(32) * 0.3
    phase = rng.uniform(0, 2 * np.pi, (len(kinds), 1))
    waves = np.sin((1 + 0.6 * kinds[:, None]) * time + phase)
    return (waves + rng.normal(0, 0.2, waves.shape)).astype(np.float32)[:, None]


class Pairs(Dataset):
    """Two signals, and 1.0 where they are of different kinds."""

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(0)
        first = rng.integers(0, 5, count)
        second = np.where(rng.random(count) < 0.5, first, rng.integers(0, 5, count))
        self.first, self.second = signals(first, rng), signals(second, rng)
        self.labels = (first != second).astype(np.float32)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return (
            torch.from_numpy(self.first[index]),
            torch.from_numpy(self.second[index]),
            torch.from_numpy(np.array([self.labels[index]])),
        )


class SiameseNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv1d(1, 8, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.BatchNorm1d(8),
            nn.MaxPool1d(2),
            nn.Conv1d(8, 8, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.AvgPool1d(2),
        )
        self.fc = nn.Sequential(nn.Linear(64, 32), nn.ReLU(inplace=True), nn.Linear(32, 4))

    def forward_once(self, x: torch.Tensor) -> torch.Tensor:
        output = self.cnn(x)  # [b, 1, 32] -> [b, 8, 8]
        return self.fc(output.view(output.size()[0], -1))

    def forward(
        self, input1: torch.Tensor, input2: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.forward_once(input1), self.forward_once(input2)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin: float = 2.0) -> None:
        super().__init__()
        self.margin = margin

    def forward(
        self, output1: torch.Tensor, output2: torch.Tensor, label: torch.Tensor
    ) -> torch.Tensor:
        distance = F.pairwise_distance(output1, output2, keepdim=True)
        return torch.mean(
            (1 - label) * torch.pow(distance, 2)
            + label * torch.pow(torch.clamp(self.margin - distance, min=0.0), 2)
        )


def main(steps: int = 100) -> list[float]:
    loader = DataLoader(Pairs(160), shuffle=False, num_workers=0, batch_size=16)
    net = SiameseNetwork()
    fill(net, 2)
    criterion = ContrastiveLoss()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, alpha=0.99)
    losses: list[float] = []
    epoch = 0
    while len(losses) < steps:
        for img0, img1, label in loader:
            optimizer.zero_grad()
            output1, output2 = net(img0, img1)
            loss = criterion(output1, output2, label)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
        if epoch % 5 == 0:
            print(f"Epoch {epoch}\tcurrent loss {losses[-1]:.4f}")
        epoch += 1
    return losses


if __name__ == "__main__":
    main()
