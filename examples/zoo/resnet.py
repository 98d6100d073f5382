"""A small residual network: basic blocks, batch normalization, SGD with momentum."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from weights import fill


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, in_planes: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != self.expansion * planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, planes, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(planes),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self, num_blocks: list[int], num_classes: int = 4) -> None:
        super().__init__()
        self.in_planes = 8
        self.conv1 = nn.Conv2d(3, 8, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = self._make_layer(8, num_blocks[0], stride=1)
        self.layer2 = self._make_layer(16, num_blocks[1], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.linear = nn.Linear(16, num_classes)

    def _make_layer(self, planes: int, num_blocks: int, stride: int) -> nn.Sequential:
        layers = []
        for one in [stride] + [1] * (num_blocks - 1):
            layers.append(BasicBlock(self.in_planes, planes, one))
            self.in_planes = planes
        return nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.bn1(self.conv1(x)))  # [b, 3, 12, 12] -> [b, 8, 12, 12]
        out = self.layer2(self.layer1(out))  # -> [b, 16, 6, 6]
        out = self.avgpool(out)
        return self.linear(out.view(out.size(0), -1))


def textures(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pictures [count, 3, 12, 12] of flat, striped, barred or chequered texture."""
    targets = rng.integers(0, 4, count)
    rows, columns = np.mgrid[0:12, 0:12]
    kinds = np.stack([0 * rows, rows % 2, columns % 2, (rows + columns) % 2])
    noise = rng.normal(0, 0.7, (count, 3, 12, 12))
    return (kinds[targets][:, None] + noise).astype(np.float32), targets


def main(steps: int = 100) -> list[float]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rng = np.random.default_rng(0)
    net = ResNet([1, 1]).to(device)
    fill(net, 1)
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    losses: list[float] = []
    net.train()
    for step in range(steps):
        images, labels = textures(16, rng)
        inputs, targets = torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step} loss {losses[-1]:.4f} lr {scheduler.get_last_lr()[0]:.4f}")

    net.eval()
    images, labels = textures(64, rng)
    with torch.no_grad():
        outputs = net(torch.from_numpy(images).to(device))
    accuracy = (outputs.argmax(1) == torch.from_numpy(labels).to(device)).float().mean().item()
    print(f"accuracy {accuracy:.3f}")
    return losses


if __name__ == "__main__":
    main()
