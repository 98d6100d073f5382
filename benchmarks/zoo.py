"""The programs of examples/zoo beside torch: the time of a step, in one process, in turns.

    python zoo.py                    # every program, 20 steps each
    python zoo.py resnet dcgan --steps 50
    GT_THREADS=1 python zoo.py --threads 1
    taskset -c 0 python zoo.py       # client and worker share a core

Each program runs three times with each library, and the faster of the last two runs counts: the
first one starts the worker, loads kernels, and infers results of operators without a row. Processor
time is that of the client and its workers; it is the figure to read where other programs share the
cores. The output is a Markdown table.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
import types
import warnings
from pathlib import Path

import torch
from programs import ZOO, program, with_gt

import gt


def main() -> None:
    programs = sorted(path.stem for path in ZOO.glob("*.py") if path.stem != "weights")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=programs)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, help="of torch; of GT: GT_THREADS")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    gt.ones(1).item()
    print("| program | GT, ms a step | PyTorch | ratio | first run | processor time, ms | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in options.programs:
        print(_line(name, options.steps), flush=True)


def _line(name: str, steps: int) -> str:
    source = (ZOO / f"{name}.py").read_text(encoding="utf-8")
    ours, theirs = program(name, with_gt(source)), program(name, source)
    first = [_took(side, steps) for side in (ours, theirs)]
    pairs = [[_took(side, steps) for side in (ours, theirs)] for _ in range(2)]
    wall, cpu = (
        [min(pair[side][kind] for pair in pairs) * 1e3 / steps for side in (0, 1)]
        for kind in (0, 1)
    )
    return (
        f"| {name} | {wall[0]:.2f} | {wall[1]:.2f} | {wall[0] / wall[1]:.2f} x "
        f"| {first[0][0] / first[1][0]:.2f} x | {cpu[0]:.2f} | {cpu[0] / cpu[1]:.2f} x |"
    )


def _took(script: types.ModuleType, steps: int) -> tuple[float, float]:
    """Elapsed seconds of a run, and its processor seconds."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        used, start = _processor_seconds(), time.perf_counter()
        script.main(steps)
        return time.perf_counter() - start, _processor_seconds() - used


def _processor_seconds() -> float:
    """Processor time of all threads of this process and of its descendants."""
    mine = Path("/proc/self/task").glob("*/children")
    workers = [pid for task in mine for pid in task.read_text().split()]
    tasks = [task for pid in workers for task in Path(f"/proc/{pid}/task").iterdir()]
    nanoseconds = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
    return time.process_time() + nanoseconds / 1e9


if __name__ == "__main__":
    main()
