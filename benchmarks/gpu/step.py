"""`python gpu/step.py`: eager training steps on the GPU, GT with GT_KERNELS=off and on, and torch.

Run from benchmarks/ on a machine with a GPU. All libraries train the same models: a float32 MLP,
whose operators GT's own kernels do not take, and a block of a GPT under autocast to bfloat16, whose
large operators they all take. The table shows medians of milliseconds a step, and GT's ratio to
torch's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from pairs import TIMES, load
from results import note, write

import gt

BEGIN = "<!-- gpu step: gpu/step.py writes from here -->"
END = "<!-- gpu step: to here -->"
MODES = ("off", "on")
HEAD = ["model", "batch", "width", *(f"GT, kernels {mode}, ms" for mode in MODES), "torch, ms"]
HEAD += [f"ratio, kernels {mode}" for mode in MODES]
LAYERS = 6
HEAD_WIDTH = 64
Steps = Callable[[], None]


@dataclass(frozen=True)
class Case:
    """A model and its input.

    Args:
        name: in the table.
        batch: rows of the MLP, sequences of the GPT.
        width: of all layers.
        positions: of a sequence; 0 for the MLP.
        steps: in a round.
    """

    name: str
    batch: int
    width: int
    positions: int = 0
    steps: int = 20


CASES = [
    *(Case("MLP", batch, width) for batch, width in ((8, 256), (1024, 2048), (4096, 4096))),
    *(Case("GPT block", batch, width, 256) for batch, width in ((2, 512), (8, 1024), (16, 2048))),
]


def block_of(nn: ModuleType, width: int) -> object:
    """Attention and a wider layer, each after a norm, and scores of `width` classes."""
    functional = nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.packed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.scores = nn.Linear(width, width)

        def forward(self, x):
            batch, positions, _ = x.shape
            packed = self.packed(self.before(x)).reshape(batch, positions, 3, -1, HEAD_WIDTH)
            query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)  # [b, h, t, k]
            seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).reshape(batch, positions, width))
            return self.scores(x + self.down(functional.gelu(self.up(self.between(x)))))

    return Block()


def mlp_steps(library: ModuleType, case: Case, place: Callable[[object], object]) -> Steps:
    """Steps of SGD on the MLP; returns when they have run."""
    nn = library.nn
    width = case.width
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(width, width), nn.ReLU())]
    model = place(nn.Sequential(*layers))
    optimizer = library.optim.SGD(model.parameters(), lr=1e-3)
    x = place(library.randn(case.batch, width))

    def steps() -> None:
        for _ in range(case.steps):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
        loss.item()

    return steps


def block_steps(library: ModuleType, case: Case, place: Callable[[object], object]) -> Steps:
    """Steps of AdamW on the block; returns when they have run."""
    model = place(block_of(library.nn, case.width))
    optimizer = library.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    x = place(library.randn(case.batch, case.positions, case.width))
    targets = place(library.arange(case.batch * case.positions) % case.width)

    def steps() -> None:
        for _ in range(case.steps):
            optimizer.zero_grad()
            with library.autocast("cuda", dtype=library.bfloat16):
                scores = model(x)
            rows = scores.float().reshape(-1, case.width)
            loss = library.nn.functional.cross_entropy(rows, targets)
            loss.backward()
            optimizer.step()
        loss.item()

    return steps


def steps_of(library: ModuleType, case: Case, place: Callable[[object], object]) -> Steps:
    """The steps of the case's model."""
    return (block_steps if case.positions else mlp_steps)(library, case, place)


def seconds_of(sides: Sequence[Steps], case: Case, rounds: int) -> list[list[float]]:
    """Seconds of a step on each side, in turn."""
    seconds: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds + 1):
        for side, steps in enumerate(sides):
            start = time.perf_counter()
            steps()
            if turn:  # the first round is a warm-up
                seconds[side].append((time.perf_counter() - start) / case.steps)
    return seconds


def compare(case: Case, rounds: int, place: Callable[[object], object], gpus: int) -> list[str]:
    """One line of the table; a worker reads GT_KERNELS where it starts, so each has a session."""
    theirs = steps_of(torch, case, place)
    ours, torchs = [], []
    for mode in MODES:
        os.environ["GT_KERNELS"] = mode
        gt.disconnect()
        if gpus:
            gt.gpu_workers(gpus)
        sides = [steps_of(gt, case, lambda value: value), theirs]
        one, other = seconds_of(sides, case, rounds)
        ours.append(statistics.median(one) * 1e3)
        torchs += other
    base = statistics.median(torchs) * 1e3
    figures = [f"{value:.4g}" for value in (*ours, base)]
    ratios = [f"{value / base:.3g} {TIMES}" for value in ours]
    return [case.name, str(case.batch), str(case.width), *figures, *ratios]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--markdown", action="store_true", help="write the table to RESULTS.md")
    given = arguments.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: nothing is measured")
    lines, before = [], load()
    for case in CASES:
        lines.append(compare(case, given.rounds, lambda value: value.cuda(), 1))
        print(" | ".join(lines[-1]), flush=True)
    if given.markdown:
        said = note("python gpu/step.py --markdown", before, torch.cuda.get_device_name())
        write(lines, said, HEAD, (BEGIN, END))


if __name__ == "__main__":
    main()
