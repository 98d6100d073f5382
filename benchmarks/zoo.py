"""The programs of examples/zoo beside torch: the time of a step, both in one process, in turns.

    python zoo.py                    # every program, 20 steps each
    python zoo.py resnet dcgan --steps 50
    GT_THREADS=1 python zoo.py --threads 1

Each program runs twice with each library and the second run counts: the first one starts worker and
kernels, and asks what operators without a row result in. A table in Markdown is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
import time
import types
import warnings
from pathlib import Path

import torch

import gt

ZOO = Path(__file__).resolve().parent.parent / "examples" / "zoo"


def main() -> None:
    programs = sorted(path.stem for path in ZOO.glob("*.py") if path.stem != "weights")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", default=programs)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, help="of torch; of GT: GT_THREADS")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    sys.path.insert(0, str(ZOO))
    gt.ones(1).item()
    print("| program | GT, ms a step | PyTorch, ms a step | ratio | first run, ratio |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in options.programs:
        print(_line(name, options.steps), flush=True)


def _line(name: str, steps: int) -> str:
    source = (ZOO / f"{name}.py").read_text(encoding="utf-8")
    ours, theirs = _program(name, _with_gt(source)), _program(name, source)
    first = [_seconds(side, steps) for side in (ours, theirs)]
    second = [_seconds(side, steps) for side in (ours, theirs)]
    times = [1e3 * seconds / steps for seconds in second]
    ratios = [one / other for one, other in (second, first)]
    return f"| {name} | {times[0]:.2f} | {times[1]:.2f} | {ratios[0]:.2f} x | {ratios[1]:.2f} x |"


def _seconds(program: types.ModuleType, steps: int) -> float:
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        program.main(steps)
        return time.perf_counter() - start


def _with_gt(source: str) -> str:
    """The program with its imports of torch changed, and nothing else."""
    source = re.sub(r"^import torch$", "import gt as torch", source, flags=re.MULTILINE)
    return re.sub(r"^(import|from) torch\b(?!$)", r"\1 gt", source, flags=re.MULTILINE)


def _program(name: str, source: str) -> types.ModuleType:
    module = types.ModuleType(name)
    sys.modules[name] = module  # dataclasses look their module up
    exec(compile(source, str(ZOO / f"{name}.py"), "exec"), module.__dict__)
    return module


if __name__ == "__main__":
    main()
