"""A DCGAN of striped pictures: transposed convolutions against strided ones."""

import numpy as np
import torch
from torch import nn, optim
from weights import fill

NZ, NGF, NDF = 16, 8, 8


def stripes(count: int, rng: np.random.Generator) -> np.ndarray:
    """Pictures [count, 1, 16, 16] of waves with any direction and phase, in [-1, 1]."""
    rows, columns = np.mgrid[0:16, 0:16] / 3
    angle, phase = rng.uniform(0, 2 * np.pi, (2, count, 1, 1))
    return np.sin(np.cos(angle) * rows + np.sin(angle) * columns + phase)[:, None]


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(NZ, NGF * 2, 4, 1, 0, bias=False),  # -> [b, 16, 4, 4]
            nn.BatchNorm2d(NGF * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(NGF * 2, NGF, 4, 2, 1, bias=False),  # -> [b, 8, 8, 8]
            nn.BatchNorm2d(NGF),
            nn.ReLU(True),
            nn.ConvTranspose2d(NGF, 1, 4, 2, 1, bias=False),  # -> [b, 1, 16, 16]
            nn.Tanh(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.main(x)


class Discriminator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, NDF, 4, 2, 1, bias=False),  # -> [b, 8, 8, 8]
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(NDF, NDF * 2, 4, 2, 1, bias=False),  # -> [b, 16, 4, 4]
            nn.BatchNorm2d(NDF * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(NDF * 2, 1, 4, 1, 0, bias=False),  # -> [b, 1, 1, 1]
            nn.Sigmoid(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.main(x).view(-1)


def main(steps: int = 100) -> list[float]:
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    rng = np.random.default_rng(0)
    netG, netD = Generator().to(device), Discriminator().to(device)  # noqa: N806 - their usual names
    fill(netG, 1)
    fill(netD, 2)
    criterion = nn.BCELoss()
    optimizerD = optim.Adam(netD.parameters(), lr=0.0002, betas=(0.5, 0.999))  # noqa: N806
    optimizerG = optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999))  # noqa: N806
    losses: list[float] = []
    for step in range(steps):
        real = torch.tensor(stripes(16, rng), dtype=torch.float, device=device)
        noise = torch.tensor(rng.standard_normal((16, NZ, 1, 1)), dtype=torch.float, device=device)

        netD.zero_grad()
        label = torch.full((16,), 1.0, dtype=torch.float, device=device)
        errD_real = criterion(netD(real), label)  # noqa: N806
        errD_real.backward()
        fake = netG(noise)
        label.fill_(0.0)
        errD_fake = criterion(netD(fake.detach()), label)  # noqa: N806
        errD_fake.backward()
        optimizerD.step()

        netG.zero_grad()
        label.fill_(1.0)
        errG = criterion(netD(fake), label)  # noqa: N806
        errG.backward()
        optimizerG.step()

        losses += [(errD_real + errD_fake).item(), errG.item()]
        if step % 50 == 0:
            print(f"[{step}/{steps}] Loss_D: {losses[-2]:.4f} Loss_G: {losses[-1]:.4f}")
    return losses


if __name__ == "__main__":
    main()
