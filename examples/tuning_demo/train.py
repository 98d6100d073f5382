"""Training in micro-batches, forwards and backwards in the order of a pipeline schedule.

Uses the dispatcher on localhost:12345 if one answers, else starts eight workers, and says which.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("GT_CONFIG", str(Path(__file__).parent / "sharding_config.yaml"))

import numpy as np
from model import MiniGPT, add_sizes, batches, sizes_of, stage_count

import gt
from gt import pipeline

PORT = 12345


def plan_of(schedule: str, microbatches: int) -> pipeline.Plan:
    """The schedule for the configuration's stages; spreads embedding and head where configured."""
    ranks = stage_count()
    spread = {name: config.workers for name, config in gt.get_config().items()}
    short = {pipeline.EMBEDDING: 0.05}  # of a stage's cost: rows are looked up
    return pipeline.plan(
        schedule,
        ranks,
        microbatches,
        embedding=ranks > 1 and spread.get("pp_embedding") is not None,
        head=ranks > 1 and spread.get("pp_head") is not None,
        costs=pipeline.Costs(forward=short, backward=short, weights=short),
    )


def describe(plan: pipeline.Plan) -> str:
    """Phases and order on stage 0; ' marks its second stage in schedules with two."""
    warm_up, steady, cool_down = plan.phases()
    order = " ".join(
        str(unit) + "'" * (unit.stage >= plan.ranks)
        for unit in plan.of_rank(0)
        if 0 <= unit.stage < plan.stages
    )
    return (
        f"{plan.schedule.title} on stage 0: warm-up {warm_up}, steady {steady}, "
        f"cool-down {cool_down}\norder: {order}"
    )


def trainer(model: MiniGPT, plan: pipeline.Plan) -> pipeline.Pipeline:
    """A pipeline of the model's stages in the order of the plan."""

    def stage(number: int) -> Callable[[gt.Tensor], gt.Tensor]:
        return lambda x: model.stage(number, x)

    stages = [stage(number) for number in range(plan.stages)]
    meant = gt.get_config()
    workers = [meant[f"pp_stage{rank}"].workers for rank in range(plan.ranks) if plan.ranks > 1]
    known = workers if workers and all(workers) else None
    return pipeline.Pipeline(plan, stages, model.loss_of, model.embed, known)


def step(pipe: pipeline.Pipeline, parts: list[np.ndarray]) -> gt.Tensor:
    """Forward and backward of all micro-batches [b, t + 1]; their mean loss. Gradients add up."""
    tokens = [gt.tensor(part) for part in parts]
    return pipe.step([one[:, :-1] for one in tokens], [one[:, 1:] for one in tokens])


def report(log: str, pipe: pipeline.Pipeline, arguments: argparse.Namespace) -> None:
    """Idle shares as measured on the workers, without the first step, and the timeline."""
    try:
        run = pipeline.measured(log, pipe.plan, pipe.marks)
    except gt.errors.InvalidUse:
        print("idle: these workers keep no record; start them with GT_INSTRUCTION_LOG=FILE")
        return
    steps = range(min(1, arguments.steps - 1), arguments.steps)
    shares = np.mean([run.of_step(number).idle_shares() for number in steps], axis=0)
    stages = ", ".join(f"stage {stage} {share:.1%}" for stage, share in enumerate(shares))
    print(f"idle, measured on the workers: {stages}; all {shares.mean():.1%}")
    costs = pipeline.costs(pipe_run := run.of_step(steps[-1]))
    planned = pipeline.simulate(pipe.plan, costs)
    print(f"idle, simulated with the costs that they measured: {planned.idle_share:.1%}")
    if arguments.timeline:
        pipeline.png(pipe_run, arguments.timeline)
    if arguments.trace:
        pipeline.perfetto(pipe_run, arguments.trace)


def connect(address: str | None, port: int, workers: int) -> None:
    """Connect to `address`, else to a dispatcher at `port`, else start workers."""
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
    """The micro-batches of each step."""
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
    parser.add_argument(
        "--schedule",
        choices=list(pipeline.SCHEDULES),
        default=pipeline.configured() or "1f1b",
        help="default: that of the layout file (schedule:), else 1f1b",
    )
    parser.add_argument("--timeline", metavar="PNG", help="draw the last step as workers ran it")
    parser.add_argument("--trace", metavar="JSON", help="write the same for ui.perfetto.dev")
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


def train(arguments: argparse.Namespace, log: str) -> None:
    """Run all steps."""
    connect(arguments.connect, arguments.port, arguments.workers)
    gt.manual_seed(0)
    plan = plan_of(arguments.schedule, arguments.microbatches)
    model = MiniGPT(sizes_of(arguments), plan.schedule)
    print(model.describe())
    print(describe(plan), flush=True)
    pipe = trainer(model, plan)
    optimizer = gt.optim.AdamW(model.parameters(), lr=3e-4)
    for number, parts in enumerate(micro_batches(arguments)):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = step(pipe, parts)
        optimizer.step()
        print(
            f"step {number} loss {loss.item():.6f} {time.perf_counter() - start:.2f} s", flush=True
        )
    report(log, pipe, arguments)


def main() -> None:
    arguments = options()
    with tempfile.TemporaryDirectory() as folder:
        log = os.environ.setdefault("GT_INSTRUCTION_LOG", str(Path(folder) / "instructions"))
        train(arguments, log)


if __name__ == "__main__":
    main()
