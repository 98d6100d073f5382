"""Proximal policy optimization: a point learns to stay near the middle of a line."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.distributions import Normal
from weights import fill

HORIZON, EPOCHS, BATCH = 32, 2, 16
GAMMA, LAMBDA, CLIP = 0.95, 0.9, 0.2


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.mean, self.value = nn.Linear(32, 1), nn.Linear(32, 1)
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, states: torch.Tensor) -> tuple[Normal, torch.Tensor]:
        hidden = self.body(states)
        return Normal(self.mean(hidden), self.log_std.exp()), self.value(hidden).squeeze(-1)


def rollout(
    model: ActorCritic, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[float], list[float]]:
    """States [n, 2], actions [n, 1], their log probabilities [n, 1], rewards and values."""
    state = rng.normal(0, 1, 2).astype(np.float32)
    states, actions, rewards, values, logs = [], [], [], [], []
    with torch.no_grad():
        for _ in range(HORIZON):
            seen = torch.from_numpy(state)
            policy, value = model(seen)
            action = policy.mean + policy.stddev * float(rng.normal())
            states.append(seen)
            actions.append(action)
            logs.append(policy.log_prob(action))
            values.append(value.item())
            position, speed = state
            speed = 0.9 * speed + 0.1 * float(np.clip(action.item(), -2, 2))
            state = np.array([position + speed, speed], dtype=np.float32)
            rewards.append(-float(position**2))
    return torch.stack(states), torch.stack(actions), torch.stack(logs), rewards, values


def advantages(rewards: list[float], values: list[float]) -> torch.Tensor:
    """Generalized advantage estimation; the value after the last state is that of the last."""
    total, found = 0.0, []
    following = [*values[1:], values[-1]]
    for reward, value, after in zip(rewards[::-1], values[::-1], following[::-1], strict=True):
        total = reward + GAMMA * after - value + GAMMA * LAMBDA * total
        found.append(total)
    return torch.tensor(found[::-1])


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    model = ActorCritic()
    fill(model, 1)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    losses: list[float] = []
    for _ in range(steps):
        states, actions, old, rewards, values = rollout(model, rng)
        gain = advantages(rewards, values)
        returns = gain + torch.tensor(values)
        gain = (gain - gain.mean()) / (gain.std() + 1e-5)
        for _ in range(EPOCHS):
            for picked in np.split(rng.permutation(HORIZON), HORIZON // BATCH):
                index = torch.from_numpy(picked)
                policy, value = model(states[index])
                ratio = (policy.log_prob(actions[index]) - old[index]).exp().squeeze(-1)
                kept = ratio.clamp(1 - CLIP, 1 + CLIP)
                surrogate = torch.min(ratio * gain[index], kept * gain[index]).mean()
                loss = 0.5 * F.mse_loss(value, returns[index]) - surrogate
                loss = loss - 0.01 * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()
