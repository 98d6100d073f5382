"""A graph convolutional network labels the nodes of a graph with planted communities."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parameter import Parameter
from weights import fill


def communities(
    nodes: int, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Edges [2, e], features [n, 16] and labels [n]: friends have the same label more often."""
    labels = rng.integers(0, 4, nodes)
    same = labels[:, None] == labels[None, :]
    linked = rng.random((nodes, nodes)) < np.where(same, 0.1, 0.01)
    linked = np.triu(linked, 1)
    edges = np.stack(np.nonzero(linked | linked.T))
    features = rng.normal(0, 1, (nodes, 16)) + np.eye(4)[labels].repeat(4, axis=1) * 0.5
    return torch.from_numpy(edges), torch.FloatTensor(features), torch.LongTensor(labels)


def normalized(edges: torch.Tensor, nodes: int) -> torch.Tensor:
    """D^-1/2 (A + I) D^-1/2 as a matrix [n, n]."""
    adj = torch.zeros(nodes, nodes)
    adj[edges[0], edges[1]] = 1.0
    adj = adj + torch.eye(nodes)
    inverse_root = adj.sum(1).pow(-0.5)
    return inverse_root[:, None] * adj * inverse_root[None, :]


class GraphConvolution(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        self.bias = Parameter(torch.FloatTensor(out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        self.bias.data.uniform_(-stdv, stdv)

    def forward(self, x: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
        support = torch.mm(x, self.weight)  # [n, in] -> [n, out]
        return torch.mm(adj, support) + self.bias

    def __repr__(self) -> str:
        return f"{type(self).__name__} ({self.weight.shape[0]} -> {self.weight.shape[1]})"


class GCN(nn.Module):
    def __init__(self, nfeat: int, nhid: int, nclass: int, dropout: float) -> None:
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def accuracy(output: torch.Tensor, labels: torch.Tensor) -> float:
    preds = output.max(1)[1].type_as(labels)
    correct = preds.eq(labels).double().sum()
    return (correct / len(labels)).item()


def main(steps: int = 100) -> list[float]:
    edges, features, labels = communities(120, np.random.default_rng(0))
    adj = normalized(edges, 120)
    idx_train, idx_val = torch.LongTensor(range(40)), torch.LongTensor(range(40, 120))
    model = GCN(16, 16, 4, dropout=0.0)
    fill(model, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    losses: list[float] = []
    for epoch in range(steps):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss_train = F.nll_loss(output[idx_train], labels[idx_train])
        loss_train.backward()
        optimizer.step()
        losses.append(loss_train.item())
        if epoch % 50 == 0:
            model.eval()
            acc = accuracy(model(features, adj)[idx_val], labels[idx_val])
            print(f"Epoch: {epoch:04d} loss_train: {losses[-1]:.4f} acc_val: {acc:.4f}")
    return losses


if __name__ == "__main__":
    main()
