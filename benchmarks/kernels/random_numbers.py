"""Random numbers of gt._kernels beside PyTorch's: time, GB/s and the ratio, in one run.

    taskset -c 0,1 python benchmarks/kernels/random_numbers.py [--cpu-time]

Both sides fill the same memory. PyTorch's generator draws one number after another; GT computes
each from its index (docs/decisions/random.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import beside_torch
import torch
from beside_torch import Case

from gt import _kernels

_ELEMENTS = (2**10, 2**16, 2**22)
_SEED, _DRAW = 1, 0
_DROPPED = 0.1


def _of_size(count: int) -> Iterator[Case]:
    numbers, mask = torch.empty(count), torch.empty(count, dtype=torch.bool)
    floats, bools = numbers.numpy(), mask.numpy()
    whole, start = [count], [0]
    yield Case(
        f"uniform float32 {count}",
        floats.nbytes,
        lambda: numbers.uniform_(-1, 1),
        lambda threads: _kernels.uniform(floats, _SEED, _DRAW, -1, 1, whole, start, threads),
        "B",
    )
    yield Case(
        f"normal float32 {count}",
        floats.nbytes,
        lambda: numbers.normal_(0, 1),
        lambda threads: _kernels.normal(floats, _SEED, _DRAW, 0, 1, whole, start, threads),
        "B",
    )
    yield Case(
        f"dropout mask bool {count}",
        bools.nbytes,
        lambda: mask.bernoulli_(1 - _DROPPED),
        lambda threads: _kernels.dropout_mask(bools, _SEED, _DRAW, _DROPPED, whole, start, threads),
        "B",
    )
    yield Case(
        f"bernoulli bool {count}",
        bools.nbytes,
        lambda: mask.bernoulli_(0.5),
        lambda threads: _kernels.bernoulli(bools, _SEED, _DRAW, 0.5, whole, start, threads),
        "B",
    )


def _cases() -> Iterator[Case]:
    for count in _ELEMENTS:
        yield from _of_size(count)


if __name__ == "__main__":
    beside_torch.main(__doc__, _cases)
