"""An LSTM reads bits one by one and learns whether the ones so far are even: it must remember."""

import gt
from gt import nn


class Parity(nn.Module):
    """Bits [b, t] to scores [b, t, 2]."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, width, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, bits: gt.Tensor) -> gt.Tensor:
        states, _ = self.lstm(bits.unsqueeze(-1))  # [b, t] -> [b, t, 1] -> [b, t, width]
        return self.head(states)


def main() -> None:
    gt.manual_seed(1)
    model = Parity()
    optimizer = gt.optim.AdamW(model.parameters(), lr=0.02)
    schedule = gt.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=400)
    right = 0.0
    for step in range(400):
        bits = gt.randint(0, 2, (64, 8))
        parity = bits.cumsum(dim=1) % 2
        scores = model(bits.float())
        loss = nn.cross_entropy(scores.flatten(0, 1), parity.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 49:
            right = (scores.argmax(dim=-1) == parity).float().mean().item()
            print(f"step {step + 1:3}   loss {loss.item():.4f}   right {right:.1%}")
    assert right > 0.95, f"only {right:.1%} right"


if __name__ == "__main__":
    main()
