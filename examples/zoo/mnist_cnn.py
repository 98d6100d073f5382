"""A convolutional network reads digits: seven-segment pictures with noise stand for MNIST."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from weights import fill

SEGMENTS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")
BARS = {
    "a": (2, slice(4, 12)),
    "g": (7, slice(4, 12)),
    "d": (13, slice(4, 12)),
    "f": (slice(2, 8), 4),
    "e": (slice(8, 14), 4),
    "b": (slice(2, 8), 11),
    "c": (slice(8, 14), 11),
}


def digits(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pictures [count, 1, 16, 16] and what they show."""
    labels = rng.integers(0, 10, count)
    images = rng.normal(0, 0.3, (count, 1, 16, 16)).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        for bar in SEGMENTS[label]:
            image[0][BARS[bar]] += 1
    return images, labels


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout = nn.Dropout(0.0)
        self.fc1 = nn.Linear(16 * 3 * 3, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)  # [b, 1, 16, 16] -> [b, 8, 8, 8]
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)  # -> [b, 16, 3, 3]
        x = torch.flatten(x, 1)
        x = self.dropout(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    model.eval()
    correct = 0
    for data, target in loader:
        pred = model(data.to(device)).argmax(dim=1, keepdim=True)
        correct += pred.eq(target.to(device).view_as(pred)).sum().item()
    return correct / len(loader.dataset)


def main(steps: int = 100) -> list[float]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rng = np.random.default_rng(0)
    images, labels = digits(512, rng)
    train = TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    images, labels = digits(128, rng)
    test = TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    train_loader = DataLoader(train, batch_size=32, shuffle=False)
    test_loader = DataLoader(test, batch_size=64)

    model = Net().to(device)
    fill(model, 1)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    losses: list[float] = []
    while len(losses) < steps:
        model.train()
        for data, target in train_loader:
            data, target = data.to(device), target.to(device)  # noqa: PLW2901
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == steps:
                break
        scheduler.step()
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"accuracy {evaluate(model, test_loader, device):.1%}")
    return losses


if __name__ == "__main__":
    main()
