"""`python gpu/kernels.py`: GT's own CUDA kernels beside PyTorch's, on one GPU, in one run.

Rounds of both sides alternate; the median of each counts. The ratio is PyTorch's time over GT's:
above 1, GT's kernel is faster. These figures decide which kernels a worker calls.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from results import note
from torch import Tensor
from torch.nn import functional

from gt.worker.cuda.attention import How
from gt.worker.cuda.kernels import AdamwStep, CudaKernels, open_for

ROUND_S = 0.02


class Case(NamedTuple):
    """One computation on both sides; results are compared where both return some."""

    name: str
    ours: Callable[[], object]
    theirs: Callable[[], object]


class Sizes(NamedTuple):
    """Sizes of the operands."""

    products: tuple[int, ...] = (1024, 4096, 8192)
    lengths: tuple[int, ...] = (1024, 4096)
    heads: int = 16
    rows: int = 4096
    columns: int = 4096
    classes: int = 50304
    tensors: int = 100


def products(kernels: CudaKernels, sizes: Sizes) -> Iterator[Case]:
    for n in sizes.products:
        a, b = (_normal(kernels, n, n) for _ in range(2))
        bias = _normal(kernels, n)
        yield Case(f"product {n}^3", lambda a=a, b=b: kernels.gemm(a, b), lambda a=a, b=b: a @ b)
        yield Case(
            f"linear + bias + silu {n}^3",
            lambda a=a, b=b, c=bias: kernels.gemm(a, b.mT, bias=c, activation="silu"),
            lambda a=a, b=b, c=bias: functional.silu(functional.linear(a, b, c)),
        )
        few = a[:8]
        yield Case(
            f"linear of 8 rows, {n} x {n}",
            lambda a=few, b=b: kernels.gemm(a, b.mT),
            lambda a=few, b=b: functional.linear(a, b),
        )
    n = sizes.products[0]
    pairs = [(_normal(kernels, n // 8 * (1 + i % 4), n), _normal(kernels, n, n)) for i in range(8)]
    yield Case(
        f"8 products of up to {n // 2} rows",
        lambda: kernels.grouped_gemm(pairs),
        lambda: [a @ b for a, b in pairs],
    )


def attention(kernels: CudaKernels, sizes: Sizes) -> Iterator[Case]:
    """Batches of one: forward, and forward with gradients."""
    for width in (64, 128):
        for length in sizes.lengths:
            operands = [_normal(kernels, 1, sizes.heads, length, width) for _ in range(3)]
            grad = _normal(kernels, 1, sizes.heads, length, width)
            name = f"attention {sizes.heads} x {length} x {width}, causal"
            yield Case(
                name,
                lambda x=operands: _forward(kernels, x)[0],
                lambda x=operands: functional.scaled_dot_product_attention(*x, is_causal=True),
            )
            yield Case(
                f"{name}, with gradients",
                lambda x=operands, g=grad: _both_ways(kernels, x, g),
                lambda x=operands, g=grad: _torch_both_ways(x, g),
            )


def rows(kernels: CudaKernels, sizes: Sizes) -> Iterator[Case]:
    x, residual = (_normal(kernels, sizes.rows, sizes.columns) for _ in range(2))
    weight, bias = (_normal(kernels, sizes.columns) for _ in range(2))
    columns = (sizes.columns,)
    shape = f"{sizes.rows} x {sizes.columns}"
    yield Case(
        f"RMSNorm with residual, {shape}",
        lambda: kernels.rows.rms_norm(x, weight, 1e-5, residual)[0],
        lambda: functional.rms_norm(x + residual, columns, weight, 1e-5),
    )
    yield Case(
        f"LayerNorm with residual, {shape}",
        lambda: kernels.rows.layer_norm(x, weight, bias, 1e-5, residual)[0],
        lambda: functional.layer_norm(x + residual, columns, weight, bias, 1e-5),
    )
    yield Case(
        f"gradients of LayerNorm, {shape}",
        lambda: tuple(kernels.rows.norm_backward(residual, x, weight, bias, 1e-5)),
        lambda: _layer_norm_gradients(residual, x, weight, bias),
    )
    logits = _normal(kernels, sizes.rows, sizes.classes)
    targets = torch.arange(sizes.rows, device=kernels.device) % sizes.classes
    yield Case(
        f"cross-entropy with gradient, {sizes.rows} x {sizes.classes}",
        lambda: kernels.rows.cross_entropy(logits, targets, 1.0)[1],
        lambda: _cross_entropy_gradient(logits, targets),
    )


def adamw(kernels: CudaKernels, sizes: Sizes) -> Iterator[Case]:
    """Nothing is compared, because a step changes its operands."""
    shape = (sizes.columns // 4, sizes.columns // 4)
    groups = [
        [torch.rand(shape, device=kernels.device) for _ in range(sizes.tensors)] for _ in range(4)
    ]
    step = AdamwStep(1e-3, 0.9, 0.95, 1e-8, 0.1, 1)
    theirs = [one.clone().requires_grad_() for one in groups[0]]
    for parameter, gradient in zip(theirs, groups[1], strict=True):
        parameter.grad = gradient
    # Fused on a GPU as on a CPU.
    optimizer = torch.optim.AdamW(theirs, lr=1e-3, betas=(0.9, 0.95), fused=True)
    yield Case(
        f"AdamW of {sizes.tensors} tensors of {shape[0]} x {shape[1]}",
        lambda: kernels.adamw(*groups, step),
        optimizer.step,
    )


def cases(kernels: CudaKernels, sizes: Sizes) -> Iterator[Case]:
    for family in (products, attention, rows, adamw):
        yield from family(kernels, sizes)


def _normal(kernels: CudaKernels, *shape: int) -> Tensor:
    return torch.randn(*shape, device=kernels.device).bfloat16()


def _how(query: Tensor) -> How:
    return How(query.shape[-1] ** -0.5, is_causal=True)


def _forward(kernels: CudaKernels, operands: list[Tensor]) -> tuple[Tensor, Tensor]:
    query, key, value = operands
    return kernels.attention.forward(query, key, value, _how(query))


def _both_ways(kernels: CudaKernels, operands: list[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
    query, key, value = operands
    results = _forward(kernels, operands)
    return kernels.attention.backward(grad, (query, key, value), results, _how(query))


def _torch_both_ways(operands: list[Tensor], grad: Tensor) -> tuple[Tensor, ...]:
    leaves = [x.detach().requires_grad_() for x in operands]
    functional.scaled_dot_product_attention(*leaves, is_causal=True).backward(grad)
    return tuple(x.grad for x in leaves)


def _layer_norm_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, ...]:
    mean = x.float().mean(-1, keepdim=True)
    scale = (x.float().var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()
    saved = (mean, scale) if x.is_cuda else (mean.to(x.dtype), scale.to(x.dtype))
    made = torch.ops.aten.native_layer_norm_backward(
        grad, x, x.shape[-1:], *saved, weight, bias, [True, True, True]
    )
    return tuple(made)


def _cross_entropy_gradient(logits: Tensor, targets: Tensor) -> Tensor:
    leaf = logits.detach().requires_grad_()
    functional.cross_entropy(leaf, targets, reduction="sum").backward()
    return leaf.grad


def _seconds(run: Callable[[], object], repeats: int) -> float:
    """Seconds of one call, on the device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / repeats


def compare(case: Case, rounds: int) -> list[str]:
    """A line of the table: name, our and PyTorch's microseconds, the ratio."""
    sides = (case.ours, case.theirs)
    repeats = []
    for run in sides:
        _seconds(run, 1)  # loads the kernel before the timing
        repeats.append(max(1, int(ROUND_S / max(_seconds(run, 2), 1e-6))))
    taken: list[list[float]] = [[], []]
    for _ in range(rounds):
        for side, run in enumerate(sides):
            taken[side].append(_seconds(run, repeats[side]))
    ours, theirs = (statistics.median(one) for one in taken)
    return [case.name, f"{ours * 1e6:.4g}", f"{theirs * 1e6:.4g}", f"{theirs / ours:.2f}"]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("only", nargs="?", default="", help="a part of the cases' names")
    given = arguments.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: nothing is measured")
    kernels = open_for(torch.device("cuda", 0))
    if kernels is None:
        sys.exit(1)  # it has said why
    print(note("python gpu/kernels.py", "", torch.cuda.get_device_name(0)))
    print("\n| kernel | ours, µs | PyTorch, µs | ratio |\n| --- | ---: | ---: | ---: |")
    for case in cases(kernels, Sizes()):
        if given.only in case.name:
            print("| " + " | ".join(compare(case, given.rounds)) + " |", flush=True)


if __name__ == "__main__":
    main()
