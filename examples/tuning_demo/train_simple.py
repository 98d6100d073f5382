"""The simplest way: eight workers of its own, the layout from sharding_config.yaml, plain training.

GT_CONFIG= (empty) takes the layout away, `--workers 1` the workers; the losses stay the same.
"""

import argparse
import os
import time
from pathlib import Path

os.environ.setdefault("GT_CONFIG", str(Path(__file__).parent / "sharding_config.yaml"))

from model import MiniGPT, add_sizes, batches, sizes_of

import gt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--workers", type=int, default=8)
    add_sizes(parser)
    arguments = parser.parse_args()
    gt.gpu_workers(arguments.workers)  # starts them at the first operation
    gt.manual_seed(0)
    sizes = sizes_of(arguments)
    model = MiniGPT(sizes)
    print(model.describe(), flush=True)
    optimizer = gt.optim.AdamW(model.parameters(), lr=3e-4)
    windows = batches(
        sizes, batch=arguments.batch_size, length=arguments.seq_len, steps=arguments.steps
    )
    for step, window in enumerate(windows):
        start = time.perf_counter()
        tokens = gt.tensor(window)  # [b, t + 1]
        loss = model.loss(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.6f} {time.perf_counter() - start:.2f} s", flush=True)


if __name__ == "__main__":
    main()
