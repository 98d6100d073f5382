"""A deep Q-network walks a corridor: replay memory, target network, Huber loss."""

import copy
import random
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from weights import fill

CELLS, BATCH, GAMMA = 8, 16, 0.95


class Corridor:
    """A walk over CELLS cells from the middle; the right end pays 1, the left end costs 1."""

    def reset(self) -> torch.Tensor:
        self.at, self.time = CELLS // 2, 0
        return self.state()

    def state(self) -> torch.Tensor:
        return F.one_hot(torch.tensor(self.at), CELLS).float().unsqueeze(0)

    def step(self, action: int) -> tuple[torch.Tensor, float, bool]:
        self.at, self.time = self.at + (1 if action else -1), self.time + 1
        reward = {0: -1.0, CELLS - 1: 1.0}.get(self.at, -0.01)
        return self.state(), reward, self.at in {0, CELLS - 1} or self.time == 20


class QNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(CELLS, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def optimize(
    policy: nn.Module, target: nn.Module, batch: list, optimizer: optim.Optimizer
) -> float:
    states, actions, rewards, following, ends = zip(*batch, strict=True)
    state_batch = torch.cat(states)
    action_batch = torch.tensor(actions).unsqueeze(1)
    reward_batch = torch.tensor(rewards)
    non_final = torch.tensor([not end for end in ends], dtype=torch.bool)
    values = policy(state_batch).gather(1, action_batch)
    next_values = torch.zeros(BATCH)
    with torch.no_grad():
        rest = [x for x, end in zip(following, ends, strict=True) if not end]
        if rest:
            next_values[non_final] = target(torch.cat(rest)).max(1).values
    loss = nn.SmoothL1Loss()(values, (reward_batch + GAMMA * next_values).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    return loss.item()


def main(steps: int = 100) -> list[float]:
    chance = random.Random(0)
    policy = QNetwork()
    fill(policy, 1)
    target = copy.deepcopy(policy)
    target.load_state_dict(policy.state_dict())
    optimizer = optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
    memory: deque = deque(maxlen=200)
    world, losses = Corridor(), []
    state = world.reset()
    while len(losses) < steps:
        if chance.random() < 0.9 * np.exp(-len(losses) / 50):
            action = chance.randrange(2)
        else:
            with torch.no_grad():
                action = int(policy(state).max(1).indices.view(1, 1).item())
        following, reward, end = world.step(action)
        memory.append((state, action, reward, following, end))
        state = world.reset() if end else following
        if len(memory) < BATCH:
            continue
        losses.append(optimize(policy, target, chance.sample(list(memory), BATCH), optimizer))
        after, before = policy.state_dict(), target.state_dict()
        for key in after:
            before[key] = after[key] * 0.05 + before[key] * 0.95
        target.load_state_dict(before)
        if len(losses) % 50 == 0:
            print(f"Step {len(losses)}\tLoss: {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
