"""Bubbles as two workers measured them, beside the arithmetic: `python pipeline.py`.

Two workers with a core each, four micro-batches, stages of matrix products of 20 ms and more, whose
F, B and W take equally long. 1F1B is read after each step, so a step stands by itself; the steps of
ZB-V follow each other, as those of a training loop that does not read its loss.
"""

import argparse
import os
import tempfile
from pathlib import Path

LOG = Path(tempfile.mkdtemp()) / "instructions"
os.environ["GT_INSTRUCTION_LOG"] = str(LOG)
os.environ["GT_THREADS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import gt  # noqa: E402
from gt import nn, pipeline  # noqa: E402
from gt.nn import functional  # noqa: E402

RANKS, MICROBATCHES = 2, 4
WIDTH, ROWS, LAYERS = 512, 512, 8
WARM_UP, STEPS = 2, 8


class Stage(nn.Module):
    """Matrix products on one worker."""

    def __init__(self, rank: int, layers: int) -> None:
        super().__init__()
        self.scope = f"rank{rank}"
        with gt.signal.context(self.scope):
            shapes = [(WIDTH, WIDTH)] * layers
            self.weights = nn.ParameterList(
                [nn.Parameter(gt.randn(*s) / WIDTH**0.5) for s in shapes]
            )

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        """The products of x [n, d]."""
        with gt.signal.context(self.scope):
            for weight in self.weights:
                x = x @ weight
            return x


def loss_of(x: gt.Tensor, target: gt.Tensor) -> gt.Tensor:
    """Where x is."""
    return functional.mse_loss(x, target)


def measured(name: str, *, reads: bool) -> tuple[pipeline.Plan, pipeline.Run]:
    """Steps in the order of a schedule, as the workers recorded them."""
    plan = pipeline.plan(name, RANKS, MICROBATCHES)
    layers = LAYERS // plan.schedule.chunks
    stages = [Stage(plan.ranks_of(stage)[0], layers) for stage in range(plan.stages)]
    with gt.signal.context("rank0"):
        scale = nn.Parameter(gt.ones(1))  # so that the first stage has an input with a gradient
        inputs = [gt.randn(ROWS, WIDTH) for _ in range(MICROBATCHES)]

    def scaled(x: gt.Tensor) -> gt.Tensor:
        with gt.signal.context("rank0"):
            return x * scale

    with gt.signal.context(stages[-1].scope):
        targets = [gt.randn(ROWS, WIDTH) for _ in range(MICROBATCHES)]
    workers = [[rank] for rank in range(RANKS)]
    pipe = pipeline.Pipeline(plan, stages, loss_of, scaled, workers)
    optimizer = gt.optim.SGD([p for stage in stages for p in stage.parameters()], lr=1e-3)
    for _ in range(WARM_UP + STEPS + 1):
        optimizer.zero_grad()
        loss = pipe.step(inputs, targets)
        optimizer.step()
        if reads:
            loss.item()
    return plan, pipeline.measured(str(LOG), plan, pipe.marks)


def row(name: str, *, reads: bool) -> str:
    """A line of the table."""
    plan, run = measured(name, reads=reads)
    costs = pipeline.costs(run)
    steps = range(WARM_UP, WARM_UP + STEPS)
    if reads:
        shares = [run.of_step(step).idle_share for step in steps]
        formula = pipeline.simulate(plan).idle_share
        simulated = pipeline.simulate(plan, costs).idle_share
    else:
        shares = [sum(run.steady_idle_shares(step, step + 1)) / RANKS for step in steps]
        formula = pipeline.steady_idle_share(plan)
        simulated = pipeline.steady_idle_share(plan, costs)
    times = [of.get(0, 0.0) for of in (costs.forward, costs.backward, costs.weights)]
    kinds = ", ".join(f"{time:.1f}" for time in times if time)
    words = f"{plan.schedule.title}, {'a step by itself' if reads else 'step behind step'}"
    middle = sorted(shares)[len(shares) // 2]
    return (
        f"| {words} | {kinds} | {formula:.1%} | {simulated:.1%} | {middle:.1%} | "
        f"{min(shares):.1%} to {max(shares):.1%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    gt.gpu_workers(RANKS)
    for rank in range(RANKS):
        gt.register_config(f"rank{rank}", gt.SignalConfig(workers=[rank]))
    print("| schedule | stage 0, ms | equal costs | its costs | measured, median | steps |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    print(row("1f1b", reads=True))
    print(row("zb-h1", reads=True))
    print(row("zbv", reads=False))
    gt.disconnect()


if __name__ == "__main__":
    main()
