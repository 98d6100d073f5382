"""Workers by Ray: a placement group with a bundle for each, and in it an actor that runs a worker.

As a program (`python -m gt.launch.ray N`) this is what `gt launch` runs: it asks Ray for the actors
and ends with the first that ends badly, or with all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType

from gt import config
from gt.launch import watch
from gt.launch.engine import Attached, Command, Plan

WORD_LINES = 12  # number of lines of a worker's last words
READY_SECONDS = 600.0  # time for Ray to find or start machines for all bundles


def _commands(plan: Plan) -> list[Command]:
    words = [plan.python, "-m", "gt.launch.ray", str(plan.workers), "--gpus", str(plan.gpus)]
    words += [f"--{name}={value}" for name, value in plan.settings.items()]
    words += [word for name in plan.environment for word in ("--env", name)]
    return [Command(label="ray", words=tuple(words))]


ENGINE = Attached(
    name="ray",
    summary="workers as actors of a Ray cluster",
    modules=("ray",),
    settings={"address": "auto", "strategy": "PACK", "cpus": "1"},
    commands=_commands,
    reaches_out=True,
)


class Worker:
    """An actor that runs one worker; the worker ends with the actor."""

    def run(self, words: Sequence[str], variables: Mapping[str, str]) -> tuple[int, list[str]]:
        """Returns the worker's exit code and its last words."""
        process = subprocess.Popen(
            words,
            env=config.with_settings(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            lines = [*lines[1 - WORD_LINES :], line.rstrip()]
            sys.stderr.write(line)  # Ray forwards it to the launch
        return process.wait(), lines


def main() -> int:
    """Run the workers of a launch, whose dispatcher and token the environment names."""
    parser = argparse.ArgumentParser(prog="python -m gt.launch.ray", description=main.__doc__)
    parser.add_argument("workers", type=int)
    parser.add_argument("--gpus", type=float, default=1, help="of each worker")
    parser.add_argument("--cpus", type=float, default=1, help="of each worker")
    parser.add_argument("--address", default="auto", help="of the Ray cluster; local starts one")
    parser.add_argument("--strategy", default="PACK", help="of the placement group")
    parser.add_argument("--env", action="append", default=[], help="a variable for the workers")
    options = parser.parse_args()

    import ray
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    try:
        ray.init(address=options.address, namespace="gt", logging_level="warning")
    except ConnectionError as error:
        sys.stderr.write(f"{_absent(options.address, error)}\n")
        return 1
    if options.gpus and not ray.cluster_resources().get("GPU"):
        sys.stderr.write("Ray has no GPU yet: gt launch --gpus 0 is for workers without\n")
    resources = {"CPU": options.cpus, "GPU": options.gpus}
    bundle = {name: count for name, count in resources.items() if count}
    group = placement_group([bundle] * options.workers, strategy=options.strategy)
    try:
        ray.get(group.ready(), timeout=READY_SECONDS)
        actor = ray.remote(num_cpus=options.cpus, num_gpus=options.gpus)(Worker)
        actors = [
            actor.options(
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=group, placement_group_bundle_index=index
                )
            ).remote()
            for index in range(options.workers)
        ]
        runs = {
            one.run.remote(*_worker(index, options.env)): index for index, one in enumerate(actors)
        }
        return _watched(ray, runs)
    finally:
        ray.util.remove_placement_group(group)
        ray.shutdown()


def _absent(address: str, error: ConnectionError) -> str:
    """One line for a Ray cluster that does not answer, instead of Ray's traceback."""
    words = str(error).strip().splitlines() or [type(error).__name__]
    return (
        f"no Ray cluster at address {address}: {words[0]} Start one by ray start --head, "
        "or one for this launch by gt launch --set address=local"
    )


def _worker(index: int, names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Command and variables of one worker; the token is an argument of the actor's method."""
    words = [sys.executable, "-m", "gt.worker", "--id", str(index), "--end-with-input"]
    environment = config.with_settings()
    return words, {name: environment[name] for name in ("GT_ADDRESS", "GT_TOKEN", *names)}


def _watched(ray: ModuleType, runs: dict[object, int]) -> int:
    """Returns when all have ended, or one has failed."""
    while runs:
        (ended, *_), _ = ray.wait(list(runs), num_returns=1)
        index = runs.pop(ended)
        try:
            code, words = ray.get(ended)
        except ray.exceptions.RayError as error:
            code, words = 1, str(error).splitlines()[-WORD_LINES:]
        if code:
            said = "\n    ".join(["its last words:", *words]) if words else "without a word"
            sys.stderr.write(f"worker {index} has ended {watch.manner(code)}; {said}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
