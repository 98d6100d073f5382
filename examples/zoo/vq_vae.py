"""A VQ-VAE of stripes: nearest codes, straight-through gradients, a codebook of moving averages."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from weights import fill

CODES, WIDTH = 16, 8


class VectorQuantizerEMA(nn.Module):
    def __init__(self, commitment_cost: float = 0.25, decay: float = 0.9) -> None:
        super().__init__()
        self._embedding = nn.Embedding(CODES, WIDTH)
        self._commitment_cost, self._decay, self._epsilon = commitment_cost, decay, 1e-5
        self.register_buffer("_ema_cluster_size", torch.zeros(CODES))
        self._ema_w = nn.Parameter(torch.Tensor(CODES, WIDTH))

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        inputs = inputs.permute(0, 2, 3, 1).contiguous()  # [b, c, h, w] -> [b, h, w, c]
        flat_input = inputs.view(-1, WIDTH)
        distances = (
            torch.sum(flat_input**2, dim=1, keepdim=True)
            + torch.sum(self._embedding.weight**2, dim=1)
            - 2 * torch.matmul(flat_input, self._embedding.weight.t())
        )
        encoding_indices = torch.argmin(distances, dim=1).unsqueeze(1)
        encodings = torch.zeros(encoding_indices.shape[0], CODES, device=inputs.device)
        encodings.scatter_(1, encoding_indices, 1)
        quantized = torch.matmul(encodings, self._embedding.weight).view(inputs.shape)
        if self.training:
            counts = torch.sum(encodings, 0)
            self._ema_cluster_size = (
                self._ema_cluster_size * self._decay + (1 - self._decay) * counts
            )
            n = torch.sum(self._ema_cluster_size.data)
            self._ema_cluster_size = (
                (self._ema_cluster_size + self._epsilon) / (n + CODES * self._epsilon) * n
            )
            dw = torch.matmul(encodings.t(), flat_input)
            self._ema_w = nn.Parameter(self._ema_w * self._decay + (1 - self._decay) * dw)
            self._embedding.weight = nn.Parameter(self._ema_w / self._ema_cluster_size.unsqueeze(1))
        loss = self._commitment_cost * F.mse_loss(quantized.detach(), inputs)
        quantized = inputs + (quantized - inputs).detach()
        avg_probs = torch.mean(encodings, dim=0)
        perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-10)))
        return loss, quantized.permute(0, 3, 1, 2).contiguous(), perplexity


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self._encoder = nn.Sequential(
            nn.Conv2d(1, 8, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, WIDTH, 1)
        )
        self._vq_vae = VectorQuantizerEMA()
        self._decoder = nn.Sequential(
            nn.Conv2d(WIDTH, 8, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        loss, quantized, perplexity = self._vq_vae(self._encoder(x))
        return loss, self._decoder(quantized), perplexity


def stripes(rng: np.random.Generator, count: int) -> torch.Tensor:
    phase, period = rng.uniform(0, 6, (count, 1, 1, 1)), rng.uniform(0.5, 2, (count, 1, 1, 1))
    rows = np.arange(8).reshape(1, 1, 8, 1)
    columns = np.arange(8).reshape(1, 1, 1, 8)
    image = np.sin(rows * period + phase) * np.cos(columns * period)
    return torch.from_numpy(image.astype(np.float32))


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    model = Model()
    fill(model, 1)
    trained = [p for name, p in model.named_parameters() if "_vq_vae" not in name]
    optimizer = optim.Adam(trained, lr=1e-3, amsgrad=False)
    model.train()
    losses: list[float] = []
    for i in range(steps):
        data = stripes(rng, 16)
        optimizer.zero_grad()
        vq_loss, data_recon, perplexity = model(data)
        loss = F.mse_loss(data_recon, data) + vq_loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if (i + 1) % 50 == 0:
            print(f"{i + 1} iterations")
            print(f"error {np.mean(losses[-50:]):.3f}  perplexity {perplexity.item():.3f}")
    return losses


if __name__ == "__main__":
    main()
