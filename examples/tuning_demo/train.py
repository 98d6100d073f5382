"""Training in micro-batches, forwards and backwards in the order of a pipeline schedule.

Uses the dispatcher on localhost:12345 if one answers, else starts eight workers, and says which.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("GT_CONFIG", str(Path(__file__).parent / "sharding_config.yaml"))

import numpy as np
from model import MiniGPT, add_sizes, batches, sizes_of

import gt

PORT = 12345
Order = list[tuple[str, int]]


def gpipe(microbatches: int) -> Order:
    """All forwards, then all backwards."""
    return [(kind, number) for kind in "FB" for number in range(microbatches)]


def one_forward_one_backward(microbatches: int, stages: int) -> Order:
    """1F1B as the first stage sees it: the pipeline is filled, then each forward has a backward."""
    warm_up = min(stages - 1, microbatches)
    order = [("F", number) for number in range(warm_up)]
    for number in range(warm_up, microbatches):
        order += [("F", number), ("B", number - warm_up)]
    return order + [("B", number) for number in range(microbatches - warm_up, microbatches)]


def phases(microbatches: int, stages: int) -> str:
    """How many micro-batches the phases of 1F1B have on the first stage."""
    warm_up = min(stages - 1, microbatches)
    return f"warm-up {warm_up}, steady {microbatches - warm_up}, cool-down {warm_up}"


def step(model: MiniGPT, order: Order, parts: list[np.ndarray]) -> float:
    """Forward and backward of all micro-batches [b, t + 1]; their mean loss. Gradients add up."""
    waiting: dict[int, gt.Tensor] = {}
    total = gt.zeros(())
    for kind, number in order:
        if kind == "F":
            tokens = gt.tensor(parts[number])
            waiting[number] = model.loss(tokens[:, :-1], tokens[:, 1:]) / len(parts)
        else:
            loss = waiting.pop(number)
            loss.backward()
            total = total + loss.detach()  # read once, at the end: nothing waits for a micro-batch
    return total.item()


def connect(address: str | None, port: int, workers: int) -> None:
    """The dispatcher at `address`; without one whoever answers at `port`, or workers of our own."""
    tried = address or f"localhost:{port}"
    try:
        gt.connect(tried)
        print(f"using the dispatcher at {tried}")
    except gt.ConnectionLost:
        if address is not None:
            raise
        gt.gpu_workers(workers)
        print(f"no dispatcher at {tried}: starting {workers} workers")


def micro_batches(arguments: argparse.Namespace) -> Iterator[list[np.ndarray]]:
    """For each step the micro-batches."""
    windows = batches(
        sizes_of(arguments),
        batch=arguments.batch_size,
        length=arguments.seq_len,
        steps=arguments.steps,
    )
    return (np.split(window, arguments.microbatches) for window in windows)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=32, help="sequences a step")
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--schedule", choices=["gpipe", "1f1b"], default="1f1b")
    parser.add_argument("--connect", metavar="HOST:PORT", help="a dispatcher that must answer")
    parser.add_argument(
        "--port",
        type=int,
        default=PORT,
        help="on this host: a dispatcher that is used if it answers",
    )
    parser.add_argument("--workers", type=int, default=8, help="to start where none answers")
    add_sizes(parser)
    arguments = parser.parse_args()
    if arguments.batch_size % arguments.microbatches:
        parser.error(
            f"--batch-size {arguments.batch_size} is no multiple of "
            f"--microbatches {arguments.microbatches}"
        )
    return arguments


def main() -> None:
    arguments = options()
    connect(arguments.connect, arguments.port, arguments.workers)
    gt.manual_seed(0)
    model = MiniGPT(sizes_of(arguments))
    print(model.describe())
    if arguments.schedule == "gpipe":
        order = gpipe(arguments.microbatches)
    else:
        order = one_forward_one_backward(arguments.microbatches, model.stages)
        print(f"1F1B on stage 0: {phases(arguments.microbatches, model.stages)}")
    print("order:", " ".join(f"{kind}{number}" for kind, number in order), flush=True)
    optimizer = gt.optim.AdamW(model.parameters(), lr=3e-4)
    for number, parts in enumerate(micro_batches(arguments)):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = step(model, order, parts)
        optimizer.step()
        print(f"step {number} loss {loss:.6f} {time.perf_counter() - start:.2f} s", flush=True)


if __name__ == "__main__":
    main()
