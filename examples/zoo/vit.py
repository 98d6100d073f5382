"""A vision transformer tells coloured quadrants apart: patches, a class token, an encoder."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from weights import fill


def quadrants(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pictures [count, 3, 16, 16] with one bright quadrant, and which it is."""
    labels = rng.integers(0, 4, count)
    images = rng.normal(0, 0.5, (count, 3, 16, 16)).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        row, column = 8 * (label // 2), 8 * (label % 2)
        image[:, row : row + 8, column : column + 8] += 0.5
    return images, labels


class PatchEmbed(nn.Module):
    def __init__(self, patch_size: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, kernel_size=patch_size, stride=patch_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)  # [b, 3, 16, 16] -> [b, d, n] -> [b, n, d]


class EncoderBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, width: int = 32, depth: int = 2, heads: int = 4, classes: int = 4) -> None:
        super().__init__()
        self.patch_embed = PatchEmbed(4, width)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 17, width))
        self.blocks = nn.Sequential(*[EncoderBlock(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch_embed(x)
        cls_tokens = self.cls_token.expand(x.shape[0], -1, -1)
        x = torch.cat((cls_tokens, x), dim=1) + self.pos_embed
        x = self.norm(self.blocks(x))
        return self.head(x[:, 0])


def main(steps: int = 100) -> list[float]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, labels = quadrants(256, np.random.default_rng(0))
    dataset = TensorDataset(torch.tensor(images), torch.tensor(labels))
    loader = DataLoader(dataset, batch_size=16, shuffle=False)
    model = VisionTransformer().to(device)
    fill(model, 1)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)
    losses: list[float] = []
    while len(losses) < steps:
        running, correct = 0.0, 0
        for inputs, targets in loader:
            inputs, targets = inputs.to(device), targets.to(device)  # noqa: PLW2901
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, targets)
            loss.backward()
            optimizer.step()
            scheduler.step()
            running += loss.item()
            _, predicted = outputs.max(1)
            correct += predicted.eq(targets).sum().item()
            losses.append(loss.item())
            if len(losses) == steps:
                break
        print(f"loss {running:.3f} | correct {correct}/{len(dataset)}")
    return losses


if __name__ == "__main__":
    main()
