"""A small GPT trained twice under a layout: undisturbed, and while its workers are killed.

`python tests/cluster/killed_training.py LAYOUT [--kills N] [--steps N] [--seed N]`; prints how many
were killed, and where the losses and the weights differ, as JSON. A worker is killed behind one
part of a step, while its instructions still run, or a moment later.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import yaml
from gpt_layouts import LAYOUTS, Gpt, batches
from worker_processes import worker_processes

import gt
from gt.nn import functional

PARTS = ("forward", "backward", "step")


class Killer:
    """Kills workers of this program, some behind each part of a training step."""

    def __init__(self, workers: int, points: int, kills: int, seed: int, rest: float) -> None:
        self.draws = random.Random(seed)
        self.workers, self.killed, self.seen, self.rest = workers, 0, 0, rest
        # A first worker that ends before it has worked is not replaced.
        later = range(len(PARTS), points)
        self.points = set(self.draws.sample(later, min(kills, len(later))))

    def passed(self) -> None:
        """A part of a step has been sent to the workers."""
        here = self.seen in self.points
        self.seen += 1
        if here and self.draws.random() < 0.5:
            self.kill()
        elif here:
            threading.Timer(self.draws.random() * 0.03, self.kill).start()
        if here and self.rest:
            time.sleep(self.rest)

    def kill(self) -> None:
        """Ends one worker, once all are there."""
        limit = time.monotonic() + 20
        while len(alive := worker_processes()) < self.workers and time.monotonic() < limit:
            time.sleep(0.001)
        os.kill(self.draws.choice(alive), signal.SIGKILL)
        self.killed += 1


def trained(name: str, steps: int, passed: Callable[[], None]) -> tuple[list[float], list[bytes]]:
    """The losses, and the weights at the end; each part of a step is passed."""
    placed = LAYOUTS[name]
    gt.manual_seed(7)
    data, letters = batches(steps)
    model = Gpt(letters)
    optimizer = gt.optim.AdamW(model.parameters(), lr=3e-3)

    def given(array: np.ndarray) -> gt.Tensor:
        tensor = gt.tensor(array)
        return gt._core.distribute(tensor, layout=placed.batch) if placed.batch else tensor

    losses = []
    for step, batch in enumerate(data):
        logits = model(given(batch[:, :-1]))
        targets = given(batch[:, 1:]).reshape(-1)
        loss = functional.cross_entropy(logits.reshape(-1, letters), targets)
        passed()
        optimizer.zero_grad()
        loss.backward()
        passed()
        optimizer.step()
        passed()
        losses.append(loss if step % 3 else loss.item())
    losses = [float(loss) for loss in losses]
    return losses, [weight.detach().numpy().tobytes() for weight in model.parameters()]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layout", choices=LAYOUTS)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rest", type=float, default=0.0, help="seconds after each kill")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "layout.yaml"
        config.write_text(yaml.safe_dump(dict(LAYOUTS[words.layout].scopes)))
        gt.load_config(config)
    workers = LAYOUTS[words.layout].workers
    gt.gpu_workers(workers)
    begun = time.monotonic()
    losses, weights = trained(words.layout, words.steps, lambda: None)
    undisturbed = time.monotonic() - begun
    gt.disconnect()
    killer = Killer(workers, words.steps * len(PARTS), words.kills, words.seed, words.rest)
    begun = time.monotonic()
    disturbed_losses, disturbed_weights = trained(words.layout, words.steps, killer.passed)
    differ = {
        "losses": [
            k
            for k, pair in enumerate(zip(losses, disturbed_losses, strict=True))
            if len(set(pair)) > 1
        ],
        "weights": [
            k
            for k, pair in enumerate(zip(weights, disturbed_weights, strict=True))
            if len(set(pair)) > 1
        ],
    }
    seconds = [round(undisturbed, 2), round(time.monotonic() - begun, 2)]
    json.dump({"killed": killer.killed, "differ": differ, "seconds": seconds}, sys.stdout)


if __name__ == "__main__":
    main()
