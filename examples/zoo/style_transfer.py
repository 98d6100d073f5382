"""Style transfer: a picture is optimized until its features match a content and a style."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from weights import fill


def gram_matrix(features: torch.Tensor) -> torch.Tensor:
    a, b, c, d = features.size()
    features = features.view(a * b, c * d)
    G = torch.mm(features, features.t())  # noqa: N806
    return G.div(a * b * c * d)


class ContentLoss(nn.Module):
    def __init__(self, target: torch.Tensor) -> None:
        super().__init__()
        self.target = target.detach()
        self.loss = torch.tensor(0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.loss = F.mse_loss(x, self.target)
        return x


class StyleLoss(nn.Module):
    def __init__(self, target_feature: torch.Tensor) -> None:
        super().__init__()
        self.target = gram_matrix(target_feature).detach()
        self.loss = torch.tensor(0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.loss = F.mse_loss(gram_matrix(x), self.target)
        return x


class Normalization(nn.Module):
    def __init__(self, mean: torch.Tensor, std: torch.Tensor) -> None:
        super().__init__()
        self.mean = mean.clone().detach().view(-1, 1, 1)
        self.std = std.clone().detach().view(-1, 1, 1)

    def forward(self, img: torch.Tensor) -> torch.Tensor:
        return (img - self.mean) / self.std


def style_model_and_losses(
    cnn: nn.Sequential, style: torch.Tensor, content: torch.Tensor
) -> tuple[nn.Sequential, list[StyleLoss], list[ContentLoss]]:
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    model = nn.Sequential(Normalization(mean, std))
    style_losses, content_losses = [], []
    i = 0
    for layer in cnn.children():
        if isinstance(layer, nn.Conv2d):
            i += 1
            name = f"conv_{i}"
        elif isinstance(layer, nn.ReLU):
            name = f"relu_{i}"
            layer = nn.ReLU(inplace=False)  # noqa: PLW2901
        else:
            name = f"pool_{i}"
        model.add_module(name, layer)
        if name.startswith("conv"):
            style_losses.append(StyleLoss(model(style).detach()))
            model.add_module(f"style_loss_{i}", style_losses[-1])
        if name == "conv_2":
            content_losses.append(ContentLoss(model(content).detach()))
            model.add_module(f"content_loss_{i}", content_losses[-1])
    return model, style_losses, content_losses


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    cnn = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(inplace=True),
    )
    fill(cnn, 2)
    rows, columns = np.mgrid[0:24, 0:24] / 24
    content = torch.tensor(np.stack([rows, columns, rows * columns])[None], dtype=torch.float)
    style = torch.tensor(rng.random((1, 3, 24, 24)), dtype=torch.float)
    input_img = content.clone()
    model, style_losses, content_losses = style_model_and_losses(cnn, style, content)
    input_img.requires_grad_(True)
    model.eval()
    model.requires_grad_(False)
    optimizer = optim.Adam([input_img], lr=0.02)
    losses: list[float] = []
    for step in range(steps):
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        model(input_img)
        style_score = sum(sl.loss for sl in style_losses) * 100
        content_score = sum(cl.loss for cl in content_losses)
        loss = style_score + content_score
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"Style Loss: {style_score.item():4f} Content Loss: {content_score.item():4f}")
    return losses


if __name__ == "__main__":
    main()
