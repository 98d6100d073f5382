"""A sparsely gated mixture of experts: the top two of four by a noisy gate, and a balanced load."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from weights import fill

EXPERTS, WIDTH, TOP = 4, 16, 2


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class MoE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList([Expert() for _ in range(EXPERTS)])

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        squashed = inputs.view(-1, inputs.shape[-1])  # [b, t, c] -> [b * t, c]
        gate_logits = self.gate(squashed)
        weights, selected = torch.topk(gate_logits, TOP)
        weights = F.softmax(weights, dim=1, dtype=torch.float).to(inputs.dtype)
        results = torch.zeros_like(squashed)
        for i, expert in enumerate(self.experts):
            batch_idx, nth_expert = torch.where(selected == i)
            results[batch_idx] += weights[batch_idx, nth_expert, None] * expert(squashed[batch_idx])
        probs = gate_logits.softmax(-1).mean(0)
        share = F.one_hot(selected, EXPERTS).float().sum((0, 1)) / selected.numel()
        return results.view_as(inputs), EXPERTS * (probs * share).sum()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp, self.norm, self.moe = nn.Linear(8, WIDTH), nn.LayerNorm(WIDTH), MoE()
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.inp(x)
        mixed, balance = self.moe(self.norm(x))
        return self.head(x + mixed), balance


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    model = Block()
    fill(model, 1)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    losses: list[float] = []
    for step in range(steps):
        x = torch.from_numpy(rng.standard_normal((4, 6, 8)).astype(np.float32))
        y = torch.where(x[..., :1] > 0, x.flip(-1), x.roll(1, dims=1))
        output, balance = model(x)
        loss = F.mse_loss(output, y) + 0.01 * balance
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step:4d} | loss {losses[-1]:.4f} | norm {grad_norm:.4f}")
    return losses


if __name__ == "__main__":
    main()
