"""A Wasserstein GAN with a gradient penalty learns a ring: the penalty needs second derivatives."""

import numpy as np
import torch
from torch import autograd, nn, optim
from weights import fill

LATENT, BATCH, LAMBDA = 4, 32, 10.0


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(nn.Linear(LATENT, 32), nn.ReLU(True), nn.Linear(32, 2))

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return self.main(noise)


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2)
        )
        self.out = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.main(x)).view(-1)


def gradient_penalty(
    critic: nn.Module, real: torch.Tensor, fake: torch.Tensor, alpha: torch.Tensor
) -> torch.Tensor:
    alpha = alpha.expand(real.size())
    between = autograd.Variable(alpha * real + ((1 - alpha) * fake), requires_grad=True)
    scores = critic(between)
    gradients = autograd.grad(
        outputs=scores,
        inputs=between,
        grad_outputs=torch.ones(scores.size()),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean() * LAMBDA


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)

    def drawn(*size: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal(size).astype(np.float32))

    generator, critic = Generator(), Critic()
    fill(generator, 1)
    fill(critic, 2)
    optimizer_g = optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    optimizer_d = optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    losses: list[float] = []
    for step in range(steps):
        for p in critic.parameters():
            p.requires_grad = True
        for _ in range(2):
            real = drawn(BATCH, 2)
            real = real / real.norm(dim=1, keepdim=True) * 2
            fake = generator(drawn(BATCH, LATENT)).detach()
            alpha = torch.from_numpy(rng.random((BATCH, 1)).astype(np.float32))
            critic.zero_grad()
            penalty = gradient_penalty(critic, real.data, fake.data, alpha)
            loss_d = critic(fake).mean() - critic(real).mean() + penalty
            loss_d.backward()
            optimizer_d.step()
        for p in critic.parameters():
            p.requires_grad = False
        generator.zero_grad()
        loss_g = critic(generator(drawn(BATCH, LATENT))).mean().neg()
        loss_g.backward()
        optimizer_g.step()
        losses.append(loss_d.item())
        if step % 50 == 0:
            print(f"[{step}/{steps}] Loss_D: {losses[-1]:.4f} Loss_G: {loss_g.item():.4f}")
    return losses


if __name__ == "__main__":
    main()
