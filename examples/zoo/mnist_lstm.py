"""An LSTM reads pictures of digits row by row: 28 steps of 28 pixels."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from weights import fill


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(input_size=28, hidden_size=64, batch_first=True)
        self.batchnorm = nn.BatchNorm1d(64)
        self.dropout1 = nn.Dropout(0.0)
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = images.reshape(-1, 28, 28)  # [b, t, 28]
        output, _ = self.rnn(rows)
        last = self.batchnorm(output[:, -1, :])
        return F.log_softmax(self.fc2(F.relu(self.fc1(self.dropout1(last)))), dim=1)


def pictures(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A bright bar for each digit, in a row of its own, with noise."""
    labels = rng.integers(0, 10, count)
    images = rng.normal(0, 0.3, (count, 1, 28, 28)).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        image[0, 2 * label + 4 : 2 * label + 7] += 1
    return images, labels


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    model = Net()
    fill(model, 1)
    optimizer = optim.Adadelta(model.parameters(), lr=0.1)
    scheduler = StepLR(optimizer, step_size=10, gamma=0.7)
    losses: list[float] = []
    model.train()
    for step in range(steps):
        images, labels = pictures(rng, 64)
        data, target = torch.from_numpy(images), torch.from_numpy(labels)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            scheduler.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()
