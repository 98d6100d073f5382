"""`python overlap.py`: how much of the gradients' transfer between two hosts a step hides.

Everything runs in a network namespace of its own whose loopback is as slow as a network card, and
the workers stay on TCP (`--tcp`), as workers of two hosts do. Timed in turns: forward and backward
passes whose gradients stay on their workers, the sums of gradients alone, the updates alone, and
the whole step; also a step of PyTorch's DistributedDataParallel on Gloo over the same loopback.
Needs `tc` and permission to create a namespace (`unshare`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import parallel
from pairs import TIMES, on_cores, threads
from processes import cluster

import gt

INSIDE = "GT_BENCHMARK_NAMESPACE"
LAYERS = parallel.LAYERS
BURST = "512kb"
LIMIT = (
    "ip link set lo up && tc qdisc add dev lo root tbf rate {rate}mbit burst {burst} latency 100ms"
)


def inside(rate: int) -> None:
    """Runs this program again in a namespace with a loopback of `rate` megabits a second."""
    if os.environ.get(INSIDE):
        return
    if not shutil.which("tc") or not shutil.which("unshare"):
        sys.exit("overlap.py needs `tc` (Debian: iproute2) and `unshare`")
    made = LIMIT.format(rate=rate, burst=BURST)
    if subprocess.run(["unshare", "--net", "sh", "-c", made], check=False).returncode:
        sys.exit("overlap.py needs the right to make a network namespace and to limit its loopback")
    command = ["unshare", "--net", "sh", "-c", f'{made} && exec "$@"', "sh"]
    program = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]]
    sys.exit(
        subprocess.run([*command, *program], env=os.environ | {INSIDE: "1"}, check=False).returncode
    )


class Training:
    """The MLP of `parallel.py`, data parallel over the session's workers."""

    def __init__(self, batch: int) -> None:
        gt.manual_seed(0)
        width, inner = parallel.WIDTH, parallel.INNER
        pairs = [(gt.nn.Linear(width, inner), gt.nn.Linear(inner, width)) for _ in range(LAYERS)]
        self.pairs = pairs
        self.parameters = [p for pair in pairs for layer in pair for p in layer.parameters()]
        self.optimizer = gt.optim.SGD(self.parameters, lr=1e-3)
        self.x = gt.distribute(gt.randn(batch, width), dim=0)

    def run(self, *, update: bool) -> None:
        """Forward and backward; with `update` also the sums of gradients and the updates."""
        y = self.x
        for up, down in self.pairs:
            y = y + down(gt.nn.functional.gelu(up(y)))
        loss = (y - 1).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        if update:
            self.optimizer.step()
        loss.item()

    def passes(self, steps: int) -> list[float]:
        """Seconds of each forward and backward; the gradients stay on their workers, unread."""
        return parallel.timed(lambda: self.run(update=False), steps)

    def steps(self, steps: int) -> list[float]:
        """Seconds of each step."""
        return parallel.timed(lambda: self.run(update=True), steps)

    def sums(self, steps: int) -> list[float]:
        """Seconds of each sum of gradients of the same number and sizes."""
        seconds = []
        for _ in range(steps):
            shards = [gt.distribute(gt.ones(2, *p.shape), dim=0) for p in self.parameters]
            parts = [shard.sum(0) for shard in shards]
            gt.synchronize()
            begin = time.perf_counter()
            for part in parts:
                gt.distributed.all_reduce(part)
            gt.synchronize()
            seconds.append(time.perf_counter() - begin)
        return seconds

    def updates(self, steps: int) -> list[float]:
        """Seconds of each update by gradients that are already summed."""
        self.run(update=True)

        def update() -> None:
            self.optimizer.step()
            gt.synchronize()

        return parallel.timed(update, steps)


PARTS: dict[str, Callable[[Training, int], list[float]]] = {
    "forward and backward": Training.passes,
    "the gradients' sums": Training.sums,
    "the updates": Training.updates,
    "a whole step": Training.steps,
}


def measured(part: str, batch: int, steps: int) -> list[float]:
    """One part in its own session, because sessions adapt to the use of their gradients."""
    with cluster(2, "--tcp") as address:
        gt.connect(address)
        try:
            while gt.debug.stats()["workers"] < 2:
                time.sleep(0.05)
            return PARTS[part](Training(batch), steps)
        finally:
            gt.disconnect()


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=3000, help="megabits a second")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    inside(given.rate)
    seconds: dict[str, list[float]] = {part: [] for part in (*PARTS, "DDP's step")}
    with on_cores(), threads(1):
        for _ in range(given.rounds):
            for part in PARTS:
                seconds[part] += measured(part, given.batch, given.steps)
            seconds["DDP's step"] += parallel.by_torch("dp", given.steps, given.batch)
    times = {part: statistics.median(all_of_it) * 1e3 for part, all_of_it in seconds.items()}
    step, theirs = times["a whole step"], times["DDP's step"]
    of_parts = sum(times[part] for part in PARTS if part != "a whole step")
    hidden = (of_parts - step) / times["the gradients' sums"]
    print(f"batch {given.batch}, SGD, float32, {given.rate} Mbit/s both ways together")
    print("| what | ms |\n|---|---|")
    for part, milliseconds in times.items():
        print(f"| {part} | {milliseconds:.1f} |")
    print(f"one after the other {of_parts:.1f} ms: {hidden:.0%} of the sums' time is hidden")
    print(f"beside DDP {step / theirs:.3f} {TIMES}")


if __name__ == "__main__":
    main()
