"""Training over two workers beside PyTorch over two processes: time per step as a ratio.

`python benchmarks/parallel.py` trains the same MLP data parallel (DistributedDataParallel) and
tensor parallel (DTensor) on Gloo, and with GT on two workers, one thread each, in turns; medians.
"""

import argparse
import os
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import nn

WIDTH, INNER, LAYERS, BATCH = 512, 2048, 4, 256
WORKERS = 2
ROUNDS = 3


class Block(nn.Module):
    """Up, GELU, down, and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


def timed(step: Callable[[], object], steps: int) -> list[float]:
    """Seconds of each step, without the first three."""
    seconds = []
    for _ in range(steps + 3):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return seconds[3:]


def torch_process(rank: int, port: int, way: str, steps: int, batch: int, results: Any) -> None:
    """One of PyTorch's processes."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=WORKERS)
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(*(Block() for _ in range(LAYERS)))
    rows = batch
    if way == "dp":
        model = nn.parallel.DistributedDataParallel(model)
        rows //= WORKERS
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        mesh = init_device_mesh("cpu", (WORKERS,))
        for block in model:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(rows, WIDTH)

    def step() -> float:
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    seconds = timed(step, steps)
    if rank == 0:
        results.put(seconds)
    dist.destroy_process_group()


def by_torch(way: str, steps: int, batch: int = BATCH) -> list[float]:
    """Results of two PyTorch processes that run from start to end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = processes.get_context("spawn").SimpleQueue()
    processes.spawn(torch_process, (port, way, steps, batch, results), nprocs=WORKERS)
    return results.get()


def gt_process(way: str, steps: int, results: Any) -> None:
    """GT with two workers in a program of its own."""
    os.environ |= {"GT_THREADS": "1", "GT_BACKEND": "pytorch"}
    import gt
    from gt import ShardConfig, SignalConfig

    gt.gpu_workers(WORKERS)
    if way == "tp":
        for name, axis in (("column", 1), ("row", 0)):
            shard = ShardConfig(axis=axis, workers=list(range(WORKERS)))
            gt.register_config(name, SignalConfig(shard=shard))
    gt.manual_seed(0)

    class Twin(gt.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with gt.signal.context("column"):
                self.up = gt.nn.Linear(WIDTH, INNER)
            with gt.signal.context("row"):
                self.down = gt.nn.Linear(INNER, WIDTH)

        def forward(self, x: gt.Tensor) -> gt.Tensor:
            with gt.signal.context("column"):
                y = gt.nn.functional.gelu(self.up(x))
            with gt.signal.context("row"):
                return x + self.down(y)

    model = gt.nn.Sequential(*(Twin() for _ in range(LAYERS)))
    optimizer = gt.optim.SGD(model.parameters(), lr=1e-3)
    x = gt.distribute(gt.randn(BATCH, WIDTH), dim=0 if way == "dp" else None)

    def step() -> float:
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    results.put(timed(step, steps))


def by_gt(way: str, steps: int) -> list[float]:
    """Result of a GT program that runs from start to end."""
    context = processes.get_context("spawn")
    results = context.SimpleQueue()
    program = context.Process(target=gt_process, args=(way, steps, results))
    program.start()
    seconds = results.get()
    program.join()
    return seconds


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    print(f"MLP {LAYERS} x ({WIDTH} - {INNER} - {WIDTH}), batch {BATCH}, SGD, float32")
    print("| way | torch ms | GT ms | ratio |\n|---|---|---|---|")
    for way, name in (("dp", "data parallel beside DDP"), ("tp", "tensor parallel beside DTensor")):
        ours, theirs = [], []
        for _ in range(ROUNDS):
            theirs += by_torch(way, steps)
            ours += by_gt(way, steps)
        here, there = statistics.median(ours), statistics.median(theirs)
        print(f"| {name} | {there * 1e3:.1f} | {here * 1e3:.1f} | {here / there:.3f} x |")


if __name__ == "__main__":
    main()
