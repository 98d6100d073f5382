"""`python buckets.py`: a step of a small GPT, its gradients reduced together and each for itself.

The GPT of `tests/layouts/gpt_layouts.py` (70 parameters, most of them a few kilobytes) trains data
parallel. Programs that differ in nothing but `bucket` of GT_PRICES (the bytes that are reduced
together at most; 0: nothing is) are held open side by side and take their steps in turn.
`--tcp` keeps the workers on TCP, as those of several hosts are.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pairs import load, machine, on_cores, threads
from processes import cluster

TESTS = Path(__file__).resolve().parent.parent / "tests/layouts"
BUCKETS = [0, 1 << 20]
COUNTS = [2, 4]
WIDTH = 64  # of the GPT's residual stream


def program(count: int, tcp: bool, bucket: int, orders: Any, seconds: Any) -> None:
    """Takes the requested numbers of steps, until it gets None; answers with seconds a step."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        prices = folder / "prices"
        prices.write_text(f"bucket={bucket}\n", encoding="utf-8")
        os.environ |= {"GT_PRICES": str(prices), "GT_BACKEND": "pytorch"}
        server = cluster(count, "--tcp", prices=prices) if tcp else nullcontext(None)
        address = stack.enter_context(server)
        step = trainer(count, address)
        seconds.put(0.0)
        while steps := orders.get():
            begin = time.perf_counter()
            for _ in range(steps):
                step()
            seconds.put((time.perf_counter() - begin) / steps)


def trainer(count: int, address: str | None) -> Any:
    """One step of training, from the batch to the loss's value."""
    sys.path.insert(0, str(TESTS))
    import gt

    gpt_layouts: Any = importlib.import_module("gpt_layouts")
    gpt_layouts.WIDTH = WIDTH
    if address:
        gt.connect(address)
        while gt.debug.stats()["workers"] < count:
            time.sleep(0.05)
    else:
        gt.gpu_workers(count)
    gt.manual_seed(7)
    (data,), letters = gpt_layouts.batches(1)
    model = gpt_layouts.Gpt(letters)
    optimizer = gt.optim.AdamW(model.parameters(), lr=3e-3)
    inputs = gt.distribute(gt.tensor(data[:, :-1]), dim=0)
    targets = gt.distribute(gt.tensor(data[:, 1:]), dim=0)

    def step() -> None:
        scores = model(inputs).reshape(-1, letters)
        loss = gt.nn.functional.cross_entropy(scores, targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    for _ in range(5):
        step()
    return step


@contextmanager
def held(count: int, tcp: bool, bucket: int) -> Iterator[Any]:
    """A process that takes a number of steps and returns the seconds of each."""
    context = get_context("spawn")
    orders, seconds = context.SimpleQueue(), context.SimpleQueue()
    child = context.Process(target=program, args=(count, tcp, bucket, orders, seconds))
    child.start()
    seconds.get()

    def turn(steps: int) -> float:
        orders.put(steps)
        return float(seconds.get())

    try:
        yield turn
    finally:
        orders.put(0)
        child.join()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--buckets", type=int, nargs="+", default=BUCKETS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tcp", action="store_true")
    given = parser.parse_args()
    print(f"{machine()}; load {load()}; workers {'on TCP' if given.tcp else 'of one host'}")
    head = [f"{bucket:,} B, ms" for bucket in given.buckets]
    print(f"| workers | {' | '.join(head)} | last / first |\n|{'---|' * (len(head) + 2)}")
    for count in given.workers:
        with on_cores(), threads(1), ExitStack() as stack:
            turns = [stack.enter_context(held(count, given.tcp, one)) for one in given.buckets]
            rounds = [[turn(given.steps) for turn in turns] for _ in range(given.rounds)]
        medians = [statistics.median(side) * 1e3 for side in zip(*rounds, strict=True)]
        cells = " | ".join(f"{one:.2f}" for one in medians)
        print(f"| {count} | {cells} | {medians[-1] / medians[0]:.3f} x |", flush=True)


if __name__ == "__main__":
    main()
