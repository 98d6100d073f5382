"""A graph attention network: softmax over the edges of each node, by scatter and gather."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from weights import fill


class GATLayer(nn.Module):
    """Features [n, in] and edges [2, e] to [n, heads * out], or [n, out] as the heads' mean."""

    def __init__(self, in_dim: int, out_dim: int, heads: int, *, concat: bool) -> None:
        super().__init__()
        self.heads, self.out_dim, self.concat = heads, out_dim, concat
        self.linear_proj = nn.Linear(in_dim, heads * out_dim, bias=False)
        self.scoring_source = nn.Parameter(torch.Tensor(1, heads, out_dim))
        self.scoring_target = nn.Parameter(torch.Tensor(1, heads, out_dim))
        self.bias = nn.Parameter(torch.zeros(heads * out_dim if concat else out_dim))
        self.leaky_relu = nn.LeakyReLU(0.2)
        nn.init.xavier_uniform_(self.scoring_source)
        nn.init.xavier_uniform_(self.scoring_target)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        nodes = x.shape[0]
        source, target = edges[0], edges[1]
        proj = self.linear_proj(x).view(-1, self.heads, self.out_dim)  # [n, h, k]
        score = (proj * self.scoring_source).sum(dim=-1).index_select(0, source) + (
            proj * self.scoring_target
        ).sum(dim=-1).index_select(0, target)  # [e, h]
        score = self.leaky_relu(score)
        weight = (score - score.max()).exp()
        index = target.unsqueeze(-1).expand_as(weight)
        total = torch.zeros(nodes, self.heads, dtype=x.dtype).scatter_add_(0, index, weight)
        attention = weight / (total.index_select(0, target) + 1e-16)
        lifted = proj.index_select(0, source) * attention.unsqueeze(-1)  # [e, h, k]
        out = torch.zeros_like(proj).index_add_(0, target, lifted)
        out = out.reshape(nodes, -1) if self.concat else out.mean(dim=1)
        return out + self.bias


class GAT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1 = GATLayer(12, 8, 4, concat=True)
        self.layer2 = GATLayer(32, 3, 2, concat=False)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.layer2(F.elu(self.layer1(x, edges)), edges)


def ring_of_cliques(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features [90, 12], edges [2, e] with self-loops, labels [90]."""
    nodes = np.arange(90)
    labels = nodes // 30
    same = labels[:, None] == labels[None, :]
    linked = rng.random((90, 90)) < np.where(same, 0.2, 0.02)
    linked |= linked.T
    np.fill_diagonal(linked, val=True)
    features = rng.normal(0, 1, (90, 12)) + 0.7 * np.eye(3)[labels].repeat(4, axis=1)
    return features.astype(np.float32), np.stack(np.nonzero(linked)), labels


def main(steps: int = 100) -> list[float]:
    rng = np.random.default_rng(0)
    features, edges, labels = (torch.from_numpy(one) for one in ring_of_cliques(rng))
    train_mask = torch.from_numpy(rng.random(90) < 0.4)
    model = GAT()
    fill(model, 1)
    loss_fn = nn.CrossEntropyLoss(reduction="mean")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    losses: list[float] = []
    for epoch in range(steps):
        model.train()
        logits = model(features, edges)
        loss = loss_fn(logits[train_mask], labels[train_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if epoch % 50 == 0:
            right = (logits.argmax(dim=-1) == labels)[~train_mask].float().mean()
            print(f"epoch {epoch} loss {loss.item():.4f} right {right.item():.3f}")
    return losses


if __name__ == "__main__":
    main()
