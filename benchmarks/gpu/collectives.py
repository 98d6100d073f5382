"""`python gpu/collectives.py`: collectives of values on GPUs: GT's kernels, copies, bytes, NCCL.

Run from benchmarks/ on a machine with GPUs. Workers share GPUs where there are fewer GPUs than
processes; without MPS these take turns, which slows kernels that wait on the device most: GT's
(GT_KERNELS=on, with copies for the rest) and NCCL's. NCCL takes part if it supports that many
processes on one GPU (NCCL_MULTI_RANK_GPU_ENABLE=1).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from members import KINDS, TorchProcesses, Workers
from pairs import load
from results import note, write
from worker_words import op

BEGIN = "<!-- gpu collectives: gpu/collectives.py writes from here -->"
END = "<!-- gpu collectives: to here -->"
SIZES = [1_000, 16_000, 256_000, 1_000_000, 16_000_000, 256_000_000]
HEAD = ["collective", "processes", "bytes", "kernels, µs", "copies, µs", "bytes, µs", "NCCL, µs"]
# By column: GT_KERNELS of the workers, and the backend of their collectives.
COLUMNS = {"kernels": ("on", "device"), "copies": ("auto", "device"), "bytes": ("auto", "")}


def arguments_of(index: int) -> list[str]:
    """Command-line arguments of a worker."""
    return ["--backend", "pytorch", "--id", str(index)]


def behind(kind: str, elements: int) -> list[bytes]:
    """Instructions after each collective: computation that waits for the result."""
    del kind, elements
    first = op("slice", (2,), (1,), (0, 0, 1, 1))
    return [first, op("neg", (3,), (2,)), op("free", (), (1, 2, 3))]


def compare(
    workers: Mapping[str, Workers], nccl: TorchProcesses, kind: str, size: int, rounds: int
) -> list[str]:
    """One line of the table: medians in microseconds, the systems in turn."""
    repeats = max(3, min(50, 64_000_000 // size))
    sides = {
        column: lambda mode=mode, backend=backend: workers[mode].round(kind, size, repeats, backend)
        for column, (mode, backend) in COLUMNS.items()
    }
    if nccl.works:
        sides["nccl"] = lambda: nccl.round(kind, size, repeats)
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(rounds + 1):
        for side, run in sides.items():
            took = run()
            if turn:  # the first round is a warm-up
                seconds[side].append(took)
    found = [f"{statistics.median(all_of) * 1e6:.4g}" for all_of in seconds.values()]
    return [
        kind,
        str(nccl.count),
        f"{size:,}",
        *found,
        *(["refused"] * (len(COLUMNS) + 1 - len(found))),
    ]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    arguments.add_argument("--markdown", action="store_true", help="write the table to RESULTS.md")
    given = arguments.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: nothing is measured")
    lines, before = [], load()
    for count in given.processes:
        with tempfile.TemporaryDirectory() as folder:
            modes = sorted({mode for mode, _ in COLUMNS.values()})
            workers = {
                mode: Workers(count, arguments_of, behind, GT_KERNELS=mode) for mode in modes
            }
            store, settings = str(Path(folder) / "store"), {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
            nccl = TorchProcesses("nccl", count, store, **settings)
            for kind in KINDS:
                for size in given.sizes:
                    lines.append(compare(workers, nccl, kind, size, given.rounds))
                    print(" | ".join(lines[-1]), flush=True)
            nccl.end()
            for group in workers.values():
                group.end()
    if given.markdown:
        names = {torch.cuda.get_device_name(place) for place in range(torch.cuda.device_count())}
        gpus = f"{torch.cuda.device_count()} x {', '.join(sorted(names))}"
        said = note("python gpu/collectives.py --markdown", before, gpus)
        write(lines, said, HEAD, (BEGIN, END))


if __name__ == "__main__":
    main()
