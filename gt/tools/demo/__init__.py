"""`gt demo`: two small models on real data, through the dispatcher and two workers.

digits.py trains data-parallel; chargpt.py trains a GPT beside PyTorch; model.py is that GPT.
Needs `gt-tensor[demo]`; of that all but PyTorch, without which workers run GT's own kernels and the
GPT has nobody beside it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gt.tools.demo import chargpt, digits

WORKERS = 2
ACCURACY_MIN = 0.97
NEEDED = ("sklearn", "matplotlib", "tqdm")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo.

    Args:
        arguments: As on the command line; those of the process if not given.

    Returns:
        0 if both models trained as expected.
    """
    options = _parsed(arguments)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(f"gt demo needs {', '.join(missing)}: pip install 'gt-tensor[demo]'", file=sys.stderr)
        return 2
    import gt
    from gt.tools.demo import chargpt, digits, plot

    threads = max(1, len(os.sched_getaffinity(0)) // WORKERS)
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(threads)  # as many as each of GT's workers has
    gt.gpu_workers(WORKERS)
    scans = digits.train(
        digits.load(options.seed),
        seed=options.seed,
        epochs=10 if options.quick else digits.EPOCHS,
        show_progress=not options.no_progress,
    )
    print(
        f"digits: {scans.accuracy:.1%} of {scans.held_out} held-out scans right, "
        f"{len(scans.losses)} steps in {scans.seconds:.1f} s"
    )
    text = chargpt.compare(
        seed=options.seed,
        steps=20 if options.quick else options.steps,
        dtype="float64" if options.float64 else "float32",
        show_progress=not options.no_progress,
    )
    _report(text, threads)
    if not options.no_plot:
        plot.draw(scans, text, options.output)
        print(f"the curves: {options.output}")
    _where_it_ran()
    return 0 if _as_it_should(scans, text, quick=options.quick) else 1


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gt demo", description="Train two small models.")
    parser.add_argument(
        "--steps", type=int, default=200, metavar="N", help="that the GPT trains (default 200)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of weights and batches")
    parser.add_argument("--quick", action="store_true", help="a few steps only, accuracy unchecked")
    parser.add_argument("--float64", action="store_true", help="the GPT in double precision")
    parser.add_argument("--no-plot", action="store_true", help="write no picture")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    parser.add_argument("--output", type=Path, default=Path("demo.png"), help="the picture")
    return parser.parse_args(arguments)


def _report(text: chargpt.Result, threads: int) -> None:
    ours, theirs = text.ours, text.torch
    steps = len(ours.losses)
    learned = f"GPT: loss {ours.losses[0]:.3f} -> {ours.losses[-1]:.3f} in {steps} steps"
    speed = f"speed: GT {steps / ours.seconds:.0f} steps/s"
    if theirs is None:
        print(f"{learned}; PyTorch is not installed, which would train the same beside it")
        print(f"{speed}, {threads} thread(s) each worker")
    else:
        print(
            f"{learned}; differs from PyTorch's by at most {text.difference:.1e} "
            f"(limit {text.limit:.0e}, {text.dtype})"
        )
        print(
            f"{speed}, PyTorch {steps / theirs.seconds:.0f} steps/s, {threads} thread(s) each: "
            f"{ours.seconds / theirs.seconds:.2f} x PyTorch's time"
        )
    print(f"what the GPT writes:\n{_indented(text.sample)}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _where_it_ran() -> None:
    from gt.compat import debug

    print("what ran where: this process emitted instructions, its dispatcher placed them, and")
    for worker in debug.get_worker_stats():
        print(
            f"  worker {worker['worker']} executed {worker['executed']:,} of them and held at most "
            f"{worker['bytes_peak'] / 1e6:.1f} MB"
        )


def _as_it_should(scans: digits.Result, text: chargpt.Result, *, quick: bool) -> bool:
    """Print each result that is not as expected."""
    good = True
    if not quick and scans.accuracy < ACCURACY_MIN:
        print(f"digits: below {ACCURACY_MIN:.0%}", file=sys.stderr)
        good = False
    if text.difference > text.limit:
        print("GPT: the curves are not equal", file=sys.stderr)
        good = False
    return good
