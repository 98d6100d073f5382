"""Training on several machines: the orchestrator here, workers wherever launch_worker.sh runs.

`python examples/guava/multi_node.py --workers 4 --master-ip 192.168.1.100`, then on each machine,
once for each GPU, the command that it prints (examples/guava/launch_worker.sh has it in a script).
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gt.guava import DistributedConfig, Orchestrator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4, help="GPUs of all machines together")
    parser.add_argument("--master-ip", default="localhost", help="an address of this machine")
    parser.add_argument("--master-port", type=int, default=29500, help="0 takes a free one")
    parser.add_argument("--epochs", type=int, default=2)
    words = parser.parse_args()
    torch.manual_seed(0)

    config = DistributedConfig(
        num_workers=words.workers,
        master_ip=words.master_ip,
        master_port=words.master_port,
        data_parallel=True,
        learning_rate=1e-2,
        save_interval=0,
        log_step_every=5,
    )
    with Orchestrator(config, mode="orchestrator") as orchestrator:
        model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
        orchestrator.register_model(model)
        points = torch.randn(320, 16)
        labels = points[:, :4].argmax(dim=1)
        dataloader = DataLoader(TensorDataset(points, labels), config.batch_size, shuffle=True)
        metrics = orchestrator.start_training(dataloader, num_epochs=words.epochs)
    print(f"loss {metrics.losses[0]:.4f} -> {metrics.losses[-1]:.4f}")
    assert metrics.losses[-1] < metrics.losses[0]


if __name__ == "__main__":
    main()
