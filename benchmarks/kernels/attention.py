"""Attention of gt._kernels beside PyTorch's kernel: time, GFLOP/s and the ratio, in one run.

    taskset -c 0,1 python benchmarks/kernels/attention.py [--cpu-time]

Operands are transposed views of [batch, tokens, heads, width], as in models. Both sides allocate
their results. Only products for pairs of a query and a key that it sees are counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import beside_torch
import torch
from beside_torch import Case, run
from torch import Tensor

# batch, heads, queries, keys, width
_SIZES = (
    (8, 4, 32, 32, 16),
    (2, 4, 1, 16, 32),
    (2, 4, 1, 64, 32),
    (2, 4, 1, 1024, 64),
    (2, 4, 4, 64, 32),
    (2, 4, 4, 256, 32),
    (2, 4, 8, 8, 32),
    (2, 4, 8, 1024, 32),
    (2, 4, 16, 128, 32),
    (2, 4, 32, 32, 64),
    (2, 4, 64, 64, 64),
    (1, 12, 1024, 1024, 64),
)
_CAUSAL = ((6, 4, 12, 12, 16), (1, 12, 1024, 1024, 64))


def _both(
    batch: int, heads: int, queries: int, keys: int, width: int, *, is_causal: bool
) -> Iterator[Case]:
    """Forward and backward."""
    lengths = (queries, keys, keys, queries)
    # [b, t, h, k] -> [b, h, t, k]
    query, key, value, grad = (
        torch.randn(batch, length, heads, width).transpose(1, 2) for length in lengths
    )
    scale = width**-0.5
    torch_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    torch_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

    def own_forward(threads: int) -> tuple[Tensor, Tensor]:
        options = (None, None, is_causal, 0.0, scale)
        output, logsumexp = run("attention", query, key, value, *options, threads=threads)
        return output, logsumexp

    kept, torch_kept = own_forward(1), torch_forward(query, key, value, 0.0, is_causal, scale=scale)

    def own_backward(threads: int) -> tuple[Tensor, ...]:
        saved = (grad, query, key, value, *kept)
        options = (None, None, is_causal, 0.0, scale)
        return run("attention_backward", *saved, *options, threads=threads)

    seen = queries * (queries + 1) // 2 if is_causal else queries * keys
    name = f"{batch} x {heads}, {queries}, {keys}, {width}{', causal' if is_causal else ''}"
    product = 2 * batch * heads * seen * width
    yield Case(
        f"attention {name}",
        2 * product,
        lambda: torch_forward(query, key, value, 0.0, is_causal, scale=scale),
        own_forward,
    )
    yield Case(
        f"  its gradient {name}",
        5 * product,
        lambda: torch_backward(grad, query, key, value, *torch_kept, 0.0, is_causal, scale=scale),
        own_backward,
    )


def _cases() -> Iterator[Case]:
    for is_causal, sizes in ((False, _SIZES), (True, _CAUSAL)):
        for size in sizes:
            yield from _both(*size, is_causal=is_causal)


if __name__ == "__main__":
    beside_torch.main(__doc__, _cases)
