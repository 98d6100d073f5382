"""Connectionist temporal classification: a GRU reads unaligned symbols from noisy frames."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from weights import fill

BLANK, SYMBOLS, FRAMES, FEATURES = 0, 6, 20, 8


def utterances(
    count: int, rng: np.random.Generator
) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Frames [count, t, 8], the symbols of each and how many frames hold something."""
    shapes = np.random.default_rng(5).normal(0, 1.5, (SYMBOLS, FEATURES))
    frames = rng.normal(0, 0.3, (count, FRAMES, FEATURES)).astype(np.float32)
    symbols, lengths = [], []
    for row in frames:
        spoken = rng.integers(1, SYMBOLS, rng.integers(2, 5))
        at = 0
        for symbol in spoken:
            at += int(rng.integers(1, 3))
            duration = int(rng.integers(1, 3))
            row[at : at + duration] += shapes[symbol]
            at += duration
        symbols.append(spoken)
        lengths.append(min(at + 2, FRAMES))
    return frames, symbols, np.array(lengths)


class SpeechModel(nn.Module):
    def __init__(self, hidden: int = 24) -> None:
        super().__init__()
        self.conv = nn.Conv1d(FEATURES, hidden, 3, padding=1)
        self.rnn = nn.GRU(hidden, hidden, bidirectional=True, batch_first=True)
        self.classifier = nn.Linear(2 * hidden, SYMBOLS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)  # [b, t, f] -> [b, t, d]
        x, _ = self.rnn(x)
        return F.log_softmax(self.classifier(x), dim=2)


def greedy(log_probs: torch.Tensor, length: int) -> list[int]:
    """The best path of [t, c], repetitions and blanks removed."""
    best = log_probs.argmax(dim=-1)[:length].tolist()
    return [
        now for before, now in zip([BLANK, *best], best, strict=False) if now not in {BLANK, before}
    ]


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    model = SpeechModel()
    fill(model, 1)
    criterion = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses: list[float] = []
    for step in range(steps):
        frames, symbols, lengths = utterances(8, rng)
        targets = torch.cat([torch.from_numpy(one) for one in symbols])
        target_lengths = torch.tensor([len(one) for one in symbols])
        log_probs = model(torch.from_numpy(frames))  # [b, t, c]
        loss = criterion(
            log_probs.transpose(0, 1), targets, torch.from_numpy(lengths), target_lengths
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0:
            read = greedy(log_probs[0].detach(), int(lengths[0]))
            print(f"step {step} loss {losses[-1]:.4f}   {symbols[0].tolist()} read as {read}")
    return losses


if __name__ == "__main__":
    main()
