"""REINFORCE: a policy learns to walk along a corridor to the goal."""

from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.distributions import Categorical
from weights import fill

EPS = float(np.finfo(np.float32).eps)


class Corridor:
    """Seven cells; the goal is the last. One step costs 0.1, wind sometimes pushes back."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.cell, self.time = rng, 0, 0

    def reset(self) -> np.ndarray:
        self.cell, self.time = 2, 0
        return self._state()

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        self.time += 1
        move = 1 if action == 1 else -1
        if self.rng.random() < 0.1:
            move = -move
        self.cell = min(max(self.cell + move, 0), 6)
        done = self.cell == 6 or self.time == 12
        return self._state(), 1.0 if self.cell == 6 else -0.1, done

    def _state(self) -> np.ndarray:
        return np.eye(7, dtype=np.float32)[self.cell]


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine1 = nn.Linear(7, 32)
        self.dropout = nn.Dropout(p=0.0)
        self.affine2 = nn.Linear(32, 2)
        self.saved_log_probs: list[torch.Tensor] = []
        self.rewards: list[float] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.affine2(x), dim=1)


def select_action(policy: Policy, state: np.ndarray, rng: np.random.Generator) -> int:
    probs = policy(torch.from_numpy(state).float().unsqueeze(0))  # [1, 7] -> [1, 2]
    action = int(rng.random() < probs[0, 1].item())  # numpy's number, not m.sample(): one run
    m = Categorical(probs)
    policy.saved_log_probs.append(m.log_prob(torch.tensor([action])))
    return action


def finish_episode(policy: Policy, optimizer: optim.Optimizer) -> float:
    R = 0.0  # noqa: N806
    returns: deque[float] = deque()
    for r in policy.rewards[::-1]:
        R = r + 0.95 * R  # noqa: N806
        returns.appendleft(R)
    scaled = torch.tensor(list(returns))
    scaled = (scaled - scaled.mean()) / (scaled.std() + EPS)
    policy_loss = [
        -log_prob * R for log_prob, R in zip(policy.saved_log_probs, scaled, strict=True)
    ]
    optimizer.zero_grad()
    loss = torch.cat(policy_loss).sum()
    loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]
    return loss.item()


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    env = Corridor(rng)
    policy = Policy()
    fill(policy, 1)
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    losses: list[float] = []
    running_reward = 0.0
    for i_episode in range(steps):
        state, done = env.reset(), False
        while not done:
            state, reward, done = env.step(select_action(policy, state, rng))
            policy.rewards.append(reward)
        running_reward = 0.05 * sum(policy.rewards) + 0.95 * running_reward
        losses.append(finish_episode(policy, optimizer))
        if i_episode % 50 == 0:
            print(f"Episode {i_episode}\tAverage reward: {running_reward:.2f}")
    return losses


if __name__ == "__main__":
    main()
