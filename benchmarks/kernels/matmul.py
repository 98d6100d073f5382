"""Matrix products of gt._kernels beside PyTorch: time, GFLOP/s and the ratio, in one run.

    taskset -c 0,1 python benchmarks/kernels/matmul.py [--cpu-time]

Rounds of both sides alternate; the median of each counts. --cpu-time counts processor time of one
thread, for a shared machine.
"""

from __future__ import annotations

import time

import beside_torch
import torch
from beside_torch import Case, seconds
from torch.nn import functional

from gt import _kernels


def _square(n: int, dtype: torch.dtype) -> Case:
    a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
    out = torch.empty_like(a)
    return Case(
        f"{dtype} {n}^3",
        2 * n**3,
        lambda: torch.mm(a, b, out=out),
        lambda threads: _kernels.matmul(out, a, b, threads=threads),
    )


def _skinny(m: int, b: torch.Tensor, *, transposed: bool) -> Case:
    (k, n), dtype = b.shape, b.dtype
    a, out = torch.randn(m, k).to(dtype), torch.empty(m, n, dtype=dtype)
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
    wide = {d: torch.randn(4096, 4096).to(d) for d in (torch.float32, *narrow)}
    skinny = [(m, b, t) for b in wide.values() for m in (1, 4, 8) for t in (True, False)]
    return [
        *(_square(n, dtype) for n, dtype in [*squares, (512, torch.float64)]),
        *(_skinny(m, b.T if t else b, transposed=t) for m, b, t in skinny),
        *(_fused(n) for n in (32, 64, 128)),
    ]


def _call(rounds: int) -> None:
    """Cost of a call of three tensors without rows to compute; the best of many rounds."""
    a, b, out = torch.ones(0, 2), torch.ones(2, 2), torch.ones(0, 2)
    own, add, empty = (
        min(seconds(call, time.perf_counter, 20000) for _ in range(5 * rounds)) * 1e9
        for call in (
            lambda: _kernels.matmul(out, a, b),
            lambda: torch.add(a, a, out=out),
            lambda: None,
        )
    )
    print(f"a call of three tensors: {own - empty:.0f} ns (torch.add {add - empty:.0f} ns)")


if __name__ == "__main__":
    beside_torch.main(__doc__, _cases, first=_call)
