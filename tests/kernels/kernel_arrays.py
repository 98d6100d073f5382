"""Arrays of float32 that tests of kernels give them; the same at each call."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import numpy.typing as npt

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-45, 3e38, -3e38)


def numbers(*size: int) -> npt.NDArray[np.float32]:
    """Normally distributed numbers."""
    return np.random.default_rng(sum(size)).standard_normal(size).astype(np.float32)


def specials(*size: int) -> npt.NDArray[np.float32]:
    """Small whole numbers, so that many are equal, and in most rows some that are special."""
    random = np.random.default_rng(sum(size) + 1)
    x = random.integers(-3, 4, size).astype(np.float32)
    for special in SPECIAL:
        x[tuple(random.integers(0, one) for one in size)] = special
    return x


POISON = 77


def run(
    kernels: ModuleType, name: str, *arguments: object, threads: int = 1
) -> tuple[npt.NDArray[np.generic], ...] | None:
    """The results of a kernel of the table; each between two elements that must stay as they are.

    Args:
        kernels: gt._kernels.
        name: The kernel's.
        arguments: As it reads them.
        threads: Threads of every kind.
    """
    made: list[npt.NDArray[np.generic]] = []

    def make(dtype: str, sizes: tuple[int, ...]) -> npt.NDArray[np.generic]:
        kind = "uint16" if dtype == "bfloat16" else dtype
        made.append(np.full(math.prod(sizes) + 2, POISON).astype(kind))
        return made[-1][1:-1].reshape(sizes)

    results: tuple[npt.NDArray[np.generic], ...] | None = kernels.run(
        name, arguments, make, threads, threads
    )
    for one in made:
        poison = np.array(POISON).astype(one.dtype)
        assert one[0] == one[-1] == poison, name
    return results
