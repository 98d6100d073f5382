"""An actor-critic balances a pole: advantages from a value head, smooth L1 for the values."""

from collections import namedtuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.distributions import Categorical
from weights import fill

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])  # noqa: PYI024


class Pole:
    """An inverted pendulum [angle, speed]; a push to either side; falls beyond 0.5."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.state, self.time = rng, np.zeros(2), 0

    def reset(self) -> np.ndarray:
        self.state, self.time = self.rng.uniform(-0.05, 0.05, 2), 0
        return self.state

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        angle, speed = self.state
        speed += 0.1 * (np.sin(angle) * 9.8 + (3.0 if action == 1 else -3.0))
        self.state = np.array([angle + 0.1 * speed, speed])
        self.time += 1
        return self.state, 1.0, bool(abs(self.state[0]) > 0.5 or self.time == 15)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine1 = nn.Linear(2, 32)
        self.action_head = nn.Linear(32, 2)
        self.value_head = nn.Linear(32, 1)
        self.saved_actions: list[SavedAction] = []
        self.rewards: list[float] = []

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def select_action(model: Policy, state: np.ndarray, rng: np.random.Generator) -> int:
    probs, state_value = model(torch.from_numpy(state).float())
    action = int(rng.random() < probs[1].item())  # numpy's number, not m.sample(): one run
    m = Categorical(probs)
    model.saved_actions.append(SavedAction(m.log_prob(torch.tensor(action)), state_value))
    return action


def finish_episode(model: Policy, optimizer: optim.Optimizer) -> float:
    R = 0.0  # noqa: N806
    returns: list[float] = []
    for r in model.rewards[::-1]:
        R = r + 0.9 * R  # noqa: N806
        returns.insert(0, R)
    policy_losses, value_losses = [], []
    scaled = torch.tensor(returns)
    scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-6)
    for (log_prob, value), R in zip(model.saved_actions, scaled, strict=True):  # noqa: N806
        advantage = R - value.item()
        policy_losses.append(-log_prob * advantage)
        value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]
    return loss.item()


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    env = Pole(rng)
    model = Policy()
    fill(model, 1)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    losses: list[float] = []
    for i_episode in range(steps):
        state, done = env.reset(), False
        while not done:
            action = select_action(model, state, rng)
            state, reward, done = env.step(action)
            model.rewards.append(reward)
        length = len(model.rewards)
        losses.append(finish_episode(model, optimizer))
        if i_episode % 50 == 0:
            print(f"Episode {i_episode}\tLast length: {length}\tLoss: {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()
