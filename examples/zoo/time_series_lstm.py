"""Two LSTM cells learn to continue sine waves, one value at a time."""

import numpy as np
import torch
from torch import nn, optim
from weights import fill


class Sequence(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.width = width
        self.lstm1 = nn.LSTMCell(1, width)
        self.lstm2 = nn.LSTMCell(width, width)
        self.linear = nn.Linear(width, 1)

    def forward(self, series: torch.Tensor, future: int = 0) -> torch.Tensor:
        outputs = []
        h_t = torch.zeros(series.size(0), self.width, dtype=series.dtype)
        c_t = torch.zeros(series.size(0), self.width, dtype=series.dtype)
        h_t2, c_t2 = torch.zeros_like(h_t), torch.zeros_like(c_t)
        for input_t in series.split(1, dim=1):  # [b, t] -> t of [b, 1]
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


def windows(count: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Sine waves [count, length] of any phase, with a trend and noise."""
    phase, slope = rng.uniform(0, 6, (count, 1)), rng.normal(0, 0.02, (count, 1))
    time = np.arange(length)
    series = np.sin(0.4 * time + phase) + slope * time
    return series + rng.normal(0, 0.05, series.shape)


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    data = windows(24, 21, rng)
    mean, std = data.mean(), data.std()
    data = torch.tensor((data - mean) / std, dtype=torch.float32)
    train, test = data[4:], data[:4]
    seq = Sequence()
    fill(seq, 1)
    criterion = nn.MSELoss()
    optimizer = optim.Adam(seq.parameters(), lr=0.01)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.99)
    losses: list[float] = []
    for step in range(steps):
        seq.train()
        optimizer.zero_grad()
        out = seq(train[:, :-1])
        loss = criterion(out, train[:, 1:])
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if step % 50 == 0:
            seq.eval()
            with torch.no_grad():
                pred = seq(test[:, :-1], future=5)
                test_loss = criterion(pred[:, :-5], test[:, 1:])
            last = pred[0, -1].item() * std + mean
            print(f"step {step} loss {losses[-1]:.4f} test {test_loss.item():.4f} ends {last:.3f}")
    return losses


if __name__ == "__main__":
    main()
