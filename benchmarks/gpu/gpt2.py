"""`python gpu/gpt2.py`: training steps of GPT-2 124M on one GPU, GT beside PyTorch.

Run from benchmarks/ on a machine with a GPU. Batch 8, 1,024 tokens, autocast to bfloat16, fused
AdamW. All sides run the same model text; PyTorch eagerly and, with `--compile`, by `torch.compile`.
Each line says the median of milliseconds a step, and the ratio to eager PyTorch.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

import gt

VOCABULARY, POSITIONS, WIDTH, HEADS, LAYERS = 50304, 1024, 768, 12, 12
STEPS = 5  # in a round, which ends with a read of the loss
Steps = Callable[[], float]


def model_of(library: ModuleType):
    """GPT-2's module, with tied embedding and head."""
    nn, functional = library.nn, library.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            batch, positions, width = x.shape
            split = self.c_attn(self.ln_1(x)).split(width, dim=2)
            heads = (one.view(batch, positions, HEADS, -1).transpose(1, 2) for one in split)
            seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + self.c_proj(seen.transpose(1, 2).reshape(batch, positions, width))
            return x + self.down(functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.positions = nn.Embedding(POSITIONS, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)
            self.head.weight = self.tokens.weight

        def forward(self, ids, targets):
            x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
            for block in self.blocks:
                x = block(x)
            scores = self.head(self.norm(x))
            return functional.cross_entropy(scores.view(-1, VOCABULARY), targets.view(-1))

    return Gpt2()


def steps_of(library: ModuleType, batch: int, device: str | None, *, compiles: bool) -> Steps:
    """A round: steps of training; returns the last loss when all have run."""
    library.manual_seed(0)
    place = (lambda value: value) if device is None else (lambda value: value.to(device))
    model = place(model_of(library))
    optimizer = library.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 50257, (batch, POSITIONS + 1), generator=generator).numpy()
    ids = place(library.from_numpy(ids))
    run = torch.compile(model) if compiles else model

    def steps() -> float:
        for _ in range(STEPS):
            with library.autocast("cuda", dtype=library.bfloat16):
                loss = run(ids[:, :-1], ids[:, 1:].contiguous())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return steps


def milliseconds(steps: Steps, rounds: int) -> float:
    """Median of a step's time; two rounds warm up."""
    times = []
    for turn in range(rounds + 2):
        start = time.perf_counter()
        loss = steps()
        if turn > 1:
            times.append((time.perf_counter() - start) / STEPS * 1e3)
    print(f"  loss {loss:.5f}", end="")
    return statistics.median(times)


def ours(mode: str, batch: int, rounds: int) -> float:
    """GT with GT_KERNELS as given, in a session of its own."""
    os.environ["GT_KERNELS"] = mode
    gt.disconnect()
    gt.gpu_workers(1)
    steps = steps_of(gt, batch, None, compiles=False)
    steps()
    before = gt.debug.get_worker_stats()
    steps()
    after = gt.debug.get_worker_stats()
    counts = {
        name: (after[0][name] - before[0][name]) // STEPS
        for name in ("aten_calls", "python_calls")
        if name in after[0]
    }
    taken = milliseconds(steps, rounds)
    print(f", calls a step {counts}", end="")
    gt.disconnect()
    return taken


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--modes", default="off,auto,on", help="values of GT_KERNELS")
    arguments.add_argument("--compile", action="store_true", help="time torch.compile too")
    given = arguments.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: nothing is measured")
    base = 0.0
    for name, compiles in (("eager torch", False), ("torch.compile", True)):
        if compiles and not given.compile:
            continue
        steps = steps_of(torch, given.batch, "cuda", compiles=compiles)
        taken = milliseconds(steps, given.rounds)
        base = base or taken
        print(f"  {name}: {taken:.2f} ms, {taken / base:.2f}", flush=True)
        del steps
        torch.cuda.empty_cache()
    for mode in given.modes.split(","):
        taken = ours(mode, given.batch, given.rounds)
        print(f"  GT, kernels {mode}: {taken:.2f} ms, {taken / base:.2f}", flush=True)


if __name__ == "__main__":
    main()
