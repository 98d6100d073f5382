"""Matrix products of gt._kernels beside PyTorch: time, GFLOP/s and the ratio, in one run.

    taskset -c 0,1 python benchmarks/kernels/matmul.py [--cpu-time]

Rounds of both sides alternate; the median of each counts. --cpu-time counts processor time at one
thread, for a machine that others use too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn import functional

from gt import _kernels

ROUNDS, ROUND_S = 9, 0.03
# PyTorch's threads spin for some milliseconds after a call, and would take a core from ours.
PAUSE_S = 0.02


class Case(NamedTuple):
    name: str
    flop: float
    torch: Callable[[], object]
    own: Callable[[int], None]


def _square(n: int, dtype: torch.dtype) -> Case:
    a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
    out = torch.empty_like(a)
    return Case(
        f"{dtype} {n}^3",
        2 * n**3,
        lambda: torch.mm(a, b, out=out),
        lambda threads: _kernels.matmul(out, a, b, threads=threads),
    )


def _skinny(m: int, n: int, k: int, dtype: torch.dtype, *, transposed: bool) -> Case:
    a, out = torch.randn(m, k).to(dtype), torch.empty(m, n, dtype=dtype)
    b = torch.randn(n, k).to(dtype).T if transposed else torch.randn(k, n).to(dtype)
    return Case(
        f"{dtype} [{m}, {k}] @ [{k}, {n}]{', b transposed' if transposed else ''}",
        2 * m * n * k,
        lambda: torch.mm(a, b, out=out),
        lambda threads: _kernels.matmul(out, a, b, threads=threads),
    )


def _fused(n: int) -> Case:
    x, w, bias = torch.randn(n, n), torch.randn(n, n), torch.randn(n)
    out = torch.empty(n, n)
    return Case(
        f"linear + bias + gelu, float32 {n}^3",
        2 * n**3,
        lambda: functional.gelu(functional.linear(x, w, bias)),
        lambda threads: _kernels.matmul(out, x, w.T, bias, None, "gelu", 1.0, threads),
    )


def _cases() -> list[Case]:
    narrow = (torch.bfloat16,) if "avx512_bf16" in _kernels.paths() else ()
    squares = [(n, d) for d in (torch.float32, *narrow) for n in (128, 256, 512, 1024, 2048)]
    skinny = [(m, d, t) for d in (torch.float32, *narrow) for m in (1, 4, 8) for t in (True, False)]
    return [
        *(_square(n, dtype) for n, dtype in [*squares, (512, torch.float64)]),
        *(_skinny(m, 4096, 4096, dtype, transposed=t) for m, dtype, t in skinny),
        *(_fused(n) for n in (32, 64, 128)),
    ]


def _seconds(call: Callable[[], object], clock: Callable[[], float], repeats: int) -> float:
    time.sleep(PAUSE_S)
    call()
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def _medians(case: Case, threads: int, clock: Callable[[], float]) -> list[float]:
    sides: list[Callable[[], object]] = [case.torch, lambda: case.own(threads)]
    sides[0]()
    repeats = max(1, int(ROUND_S / max(_seconds(sides[1], clock, 1), 1e-7)))
    rounds = [[_seconds(side, clock, repeats) for side in sides] for _ in range(ROUNDS)]
    return [statistics.median(side) for side in zip(*rounds, strict=True)]


def _call() -> None:
    """What a call of three tensors costs that has no row to compute; the best of many rounds."""
    a, b, out = torch.ones(0, 2), torch.ones(2, 2), torch.ones(0, 2)
    own, add, empty = (
        min(_seconds(call, time.perf_counter, 20000) for _ in range(5 * ROUNDS)) * 1e9
        for call in (
            lambda: _kernels.matmul(out, a, b),
            lambda: torch.add(a, a, out=out),
            lambda: None,
        )
    )
    print(f"a call of three tensors: {own - empty:.0f} ns (torch.add {add - empty:.0f} ns)")


def _show(case: Case, threads: int, clock: Callable[[], float]) -> None:
    torch_s, own_s = _medians(case, threads, clock)
    print(
        f"{case.name:52} {threads} thread{'s' * (threads > 1)}: {own_s * 1e6:9.1f} us"
        f" {case.flop / own_s / 1e9:6.1f} GFLOP/s, torch {torch_s * 1e6:9.1f} us:"
        f" {torch_s / own_s:.2f} x as fast"
    )


def main() -> None:
    """Prints a line for each case and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cpu-time", action="store_true")
    cpu_time = parser.parse_args().cpu_time
    with torch.inference_mode():
        _call()
        for threads in (1,) if cpu_time else (1, 2):
            torch.set_num_threads(threads)
            for case in _cases():
                _show(case, threads, time.process_time if cpu_time else time.perf_counter)


if __name__ == "__main__":
    main()
