"""A transformer of PyTorch's own layers on the workers of this machine: data parallel, or by flags.

`python examples/guava/transformer.py --workers 2`; `--tensor`, `--pipeline` split the model too.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gt.guava import DistributedConfig, Orchestrator


class MyTransformer(nn.Module):
    """Tokens [b, t] to scores [b, t, v] of the next one."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.transformer = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d_model, nhead=8, dim_feedforward=128, batch_first=True),
            num_layers=6,
            enable_nested_tensor=False,
        )
        self.output = nn.Linear(d_model, vocab_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        x = self.transformer(x)
        return self.output(x)


def texts(count: int, length: int, vocab_size: int) -> TensorDataset:
    """Rows of tokens, each of which is the one before it plus a number that its row has."""
    starts = torch.arange(count).unsqueeze(1)  # [n, 1]
    strides = 1 + starts % 3
    tokens = (starts + strides * torch.arange(length + 1)) % vocab_size  # [n, t + 1]
    return TensorDataset(tokens[:, :-1], tokens[:, 1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=torch.cuda.device_count())
    parser.add_argument("--tensor", action="store_true", help="cut matrices over two workers")
    parser.add_argument("--pipeline", action="store_true", help="cut layers into stages")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--d-model", type=int, default=32)
    words = parser.parse_args()
    torch.manual_seed(0)

    config = DistributedConfig(
        vocab_size=96,
        d_model=words.d_model,
        batch_size=8,
        learning_rate=3e-3,
        data_parallel=True,
        tensor_parallel=words.tensor,
        pipeline_parallel=words.pipeline,
        num_workers=words.workers,
        save_interval=0,
        log_step_every=2,
    )
    orchestrator = Orchestrator(config)

    model = MyTransformer(config.vocab_size, config.d_model)
    orchestrator.register_model(model)

    dataset = texts(64, length=12, vocab_size=config.vocab_size)
    dataloader = DataLoader(dataset, batch_size=config.batch_size, shuffle=True)
    metrics = orchestrator.start_training(dataloader, num_epochs=words.epochs)
    print(f"loss {metrics.losses[0]:.4f} -> {metrics.losses[-1]:.4f}")
    assert metrics.losses[-1] < metrics.losses[0]


if __name__ == "__main__":
    main()
