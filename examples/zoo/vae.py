"""A variational autoencoder of blobs: reconstruction and Kullback-Leibler divergence."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from weights import fill


def blobs(count: int, rng: np.random.Generator) -> np.ndarray:
    """Pictures [count, 1, 12, 12] of one bright spot each, in [0, 1]."""
    rows, columns = np.mgrid[0:12, 0:12]
    centers = rng.uniform(3, 9, (count, 2, 1, 1))
    squares = (rows - centers[:, 0]) ** 2 + (columns - centers[:, 1]) ** 2
    return np.exp(-squares / 4).astype(np.float32)[:, None]


class VAE(nn.Module):
    def __init__(self, pixels: int = 144, hidden: int = 64, latent: int = 8) -> None:
        super().__init__()
        self.pixels = pixels
        self.fc1 = nn.Linear(pixels, hidden)
        self.fc21 = nn.Linear(hidden, latent)
        self.fc22 = nn.Linear(hidden, latent)
        self.fc3 = nn.Linear(latent, hidden)
        self.fc4 = nn.Linear(hidden, pixels)

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(
        self, mu: torch.Tensor, logvar: torch.Tensor, eps: torch.Tensor
    ) -> torch.Tensor:
        std = torch.exp(0.5 * logvar)
        return mu + eps * std

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(
        self, x: torch.Tensor, eps: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mu, logvar = self.encode(x.view(-1, self.pixels))
        return self.decode(self.reparameterize(mu, logvar, eps)), mu, logvar


def loss_function(
    recon_x: torch.Tensor, x: torch.Tensor, mu: torch.Tensor, logvar: torch.Tensor
) -> torch.Tensor:
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 144), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    data = TensorDataset(torch.from_numpy(blobs(512, rng)))
    loader = DataLoader(data, batch_size=64, shuffle=False, drop_last=True)
    model = VAE()
    fill(model, 1)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    losses: list[float] = []
    while len(losses) < steps:
        for (x,) in loader:
            eps = torch.tensor(rng.standard_normal((len(x), 8)), dtype=torch.float32)
            optimizer.zero_grad()
            recon, mu, logvar = model(x, eps)
            loss = loss_function(recon, x, mu, logvar)
            loss.backward()
            losses.append(loss.item() / len(x))
            optimizer.step()
            if len(losses) == steps:
                break
    with torch.no_grad():
        sample = model.decode(torch.zeros(1, 8)).view(12, 12)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}   brightest of a sample {sample.max():.3f}")
    return losses


if __name__ == "__main__":
    main()
