"""A model, a data loader and a loss of one's own: nothing of them knows about workers."""

import argparse
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from gt.guava import DistributedConfig, Orchestrator

Sample = dict[str, torch.Tensor]


class MyCustomModel(nn.Module):
    """Images [n, 1, 8, 8] to where their spot is, [n, 2], through a residual branch."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 8, 3, padding=1)
        self.branch = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(8 * 64, 2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.convolution(image).relu()
        x = x + self.branch(x)
        return self.head(x.flatten(1))


class Spots(IterableDataset[Sample]):
    """Images with one bright point, drawn while the loader runs."""

    def __iter__(self) -> Iterator[Sample]:
        for _ in range(96):
            row, column = torch.randint(0, 8, (2,)).tolist()
            image = 0.1 * torch.rand(1, 8, 8)
            image[0, row, column] = 1.0
            yield {"image": image, "place": torch.tensor([row / 7, column / 7])}


def distance(output: torch.Tensor, batch: Sample) -> torch.Tensor:
    """A loss of one's own: of a batch that is a dictionary, it takes all of it."""
    return nn.functional.mse_loss(output, batch["place"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    words = parser.parse_args()
    torch.manual_seed(0)

    config = DistributedConfig(num_workers=words.workers, save_interval=4, log_step_every=3)
    orchestrator = Orchestrator(config)
    model = MyCustomModel()
    orchestrator.register_model(model)
    orchestrator.enable_memory_profiling()

    dataloader = DataLoader(Spots(), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    metrics = orchestrator.start_training(
        dataloader, num_epochs=3, loss_fn=distance, optimizer=optimizer
    )
    print(f"loss {metrics.losses[0]:.4f} -> {metrics.losses[-1]:.4f}")
    assert metrics.losses[-1] < metrics.losses[0]


if __name__ == "__main__":
    main()
