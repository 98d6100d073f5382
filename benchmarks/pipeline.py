"""Pipeline bubbles as measured by two workers, beside their prediction: `python pipeline.py`.

Two workers with a core each, four micro-batches, stages of matrix products (`--layers` of them),
whose F, B and W take equal times. 1F1B is read after each step, so each step stands alone; the
steps of ZB-V overlap, as in a training loop that does not read its loss.

`python pipeline.py --demo` measures the stages of examples/tuning_demo at its sizes on one worker,
and predicts four ranks: its own 1F1B, and ZB-V with head and embedding spread. `--four` predicts
four ranks and eight micro-batches from stages of `--layers` products that one worker has measured.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

LOG = Path(tempfile.mkdtemp()) / "instructions"
os.environ["GT_INSTRUCTION_LOG"] = str(LOG)
os.environ["GT_THREADS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import gt  # noqa: E402
from gt import nn, pipeline  # noqa: E402
from gt.nn import functional  # noqa: E402

RANKS, MICROBATCHES = 2, 4
WIDTH, ROWS, LAYERS = 512, 512, 40
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
    """The loss, computed where x is."""
    return functional.mse_loss(x, target)


def measured(name: str, count: int, *, reads: bool) -> tuple[pipeline.Plan, pipeline.Run]:
    """Steps in the order of a schedule, as the workers recorded them."""
    plan = pipeline.plan(name, RANKS, MICROBATCHES)
    layers = count // plan.schedule.chunks
    stages = [Stage(plan.ranks_of(stage)[0], layers) for stage in range(plan.stages)]
    with gt.signal.context("rank0"):
        scale = nn.Parameter(gt.ones(1))  # gives the first stage an input with a gradient
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


def row(name: str, count: int, *, reads: bool) -> str:
    """A line of the table."""
    plan, run = measured(name, count, reads=reads)
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


def four(count: int) -> None:
    """Idle shares of four ranks with eight micro-batches, from costs measured on one worker."""
    gt.gpu_workers(1)
    ranks, microbatches = 4, 8
    measured_plan = pipeline.plan("zbv", ranks, microbatches)
    stages = [Stage(0, count // 2) for _ in range(measured_plan.stages)]
    scale = nn.Parameter(gt.ones(1))
    pipe = pipeline.Pipeline(measured_plan, stages, loss_of, lambda x: x * scale)
    inputs = [gt.randn(ROWS, WIDTH) for _ in range(microbatches)]
    targets = [gt.randn(ROWS, WIDTH) for _ in range(microbatches)]
    for _ in range(WARM_UP + STEPS):
        pipe.step(inputs, targets)
    run = pipeline.measured(str(LOG), measured_plan, pipe.marks)
    steps = [pipeline.costs(run.of_step(step)) for step in range(WARM_UP, WARM_UP + STEPS)]
    costs = pipeline.Costs(
        forward=_medians([step.forward for step in steps]),
        backward=_medians([step.backward for step in steps]),
        weights=_medians([step.weights for step in steps]),
    )
    whole = costs_of_ranks(costs, measured_plan)
    print("| schedule | a step by itself | step behind step |")
    print("| --- | ---: | ---: |")
    for name in ("gpipe", "1f1b", "zb-h1", "zbv"):
        plan = pipeline.plan(name, ranks, microbatches)
        own = costs if plan.stages == measured_plan.stages else whole
        alone, steady = pipeline.simulate(plan, own), pipeline.steady_idle_share(plan, own)
        print(f"| {plan.schedule.title} | {alone.idle_share:.1%} | {steady:.1%} |")
    print(*(f"{kind} {min(of.values()):.0f} to {max(of.values()):.0f} ms" for kind, of in zip(
        "FBW", (costs.forward, costs.backward, costs.weights), strict=True
    )), sep=", ")  # fmt: skip
    gt.disconnect()


def _medians(steps: list[Mapping[int, float]]) -> dict[int, float]:
    """The median of each stage over steps; those of the loss and the input are not stages."""
    return {stage: statistics.median(step[stage] for step in steps) for stage in steps[0]}


def demo() -> None:
    """Steps of the demo's plans, from costs measured on one worker."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples/tuning_demo"))
    from model import MiniGPT, batches, config

    gt.gpu_workers(1)
    ranks, count, batch, length = 4, 2, 4, 128
    schedule = pipeline.SCHEDULES["zbv"]
    model = MiniGPT(config, schedule, ranks)
    spread = pipeline.plan("zbv", ranks, count, embedding=True, head=True)
    stages = [lambda x, number=number: model.stage(number, x) for number in range(spread.stages)]
    pipe = pipeline.Pipeline(spread, stages, model.loss_of, model.embed)
    for windows in batches(config, batch=batch * count, length=length, steps=2):
        tokens = gt.tensor(windows).reshape(count, batch, length + 1).unbind(0)
        pipe.step([one[:, :-1] for one in tokens], [one[:, 1:] for one in tokens])
    run = pipeline.measured(str(LOG), spread, pipe.marks)
    costs = pipeline.costs(run.of_step(1))
    own, whole = costs_of_stages(costs, spread), costs_of_ranks(costs, spread)
    base = pipeline.simulate(pipeline.plan("1f1b", ranks, 8), whole).length
    best = pipeline.plan("zbv", ranks, 8, embedding=True, head=True, costs=own)
    length, steady = pipeline.simulate(best).length, pipeline.steady_step(best)
    print(
        "| plan of four ranks, eight micro-batches | a step by itself, ms | step behind step, ms |"
    )
    print("| --- | ---: | ---: |")
    print(f"| 1F1B, head on the last stage | {base:,.0f} | {base:,.0f} |")
    print(f"| ZB-V, head and embedding spread | {length:,.0f} | {steady:,.0f} |")
    print(f"| ratio | {base / length:.2f} | {base / steady:.2f} |")
    gt.disconnect()


def costs_of_stages(costs: pipeline.Costs, plan: pipeline.Plan) -> pipeline.Costs:
    """A rank's costs of each stage: its share of the stages that are spread."""
    shares = {stage: 1 / len(plan.ranks_of(stage)) for stage in range(-1, plan.stages + 1)}

    def of(kind: Mapping[int, float]) -> dict[int, float]:
        return {stage: cost * shares[stage] for stage, cost in kind.items()}

    return pipeline.Costs(
        forward=of(costs.forward), backward=of(costs.backward), weights=of(costs.weights)
    )


def costs_of_ranks(costs: pipeline.Costs, plan: pipeline.Plan) -> pipeline.Costs:
    """Costs of one stage a rank, in order; embedding and head are in the first and the last."""

    def of(kind: Mapping[int, float]) -> dict[int, float]:
        whole = dict.fromkeys(range(plan.ranks), 0.0)
        for stage, cost in kind.items():
            inside = min(max(stage, 0), plan.stages - 1)
            whole[inside * plan.ranks // plan.stages] += cost
        return whole

    return pipeline.Costs(
        forward=of(costs.forward), backward=of(costs.backward), weights=of(costs.weights)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo", action="store_true", help="the stages of examples/tuning_demo")
    parser.add_argument("--four", action="store_true", help="four ranks, from measured costs")
    parser.add_argument("--layers", type=int, default=LAYERS, help="products of a rank")
    arguments = parser.parse_args()
    if arguments.demo:
        demo()
        return
    if arguments.four:
        four(arguments.layers)
        return
    gt.gpu_workers(RANKS)
    for rank in range(RANKS):
        gt.register_config(f"rank{rank}", gt.SignalConfig(workers=[rank]))
    print("| schedule | stage 0, ms | equal costs | its costs | measured, median | steps |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    print(row("1f1b", arguments.layers, reads=True))
    print(row("zb-h1", arguments.layers, reads=True))
    print(row("zbv", arguments.layers, reads=False))
    gt.disconnect()


if __name__ == "__main__":
    main()
