"""Arrays of float32 that tests of kernels give them; the same at each call."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-45, 3e38, -3e38)


def numbers(*size: int) -> npt.NDArray[np.float32]:
    """Of a normal distribution."""
    return np.random.default_rng(sum(size)).standard_normal(size).astype(np.float32)


def specials(*size: int) -> npt.NDArray[np.float32]:
    """Small whole numbers, so that many are equal, and in most rows some that are special."""
    random = np.random.default_rng(sum(size) + 1)
    x = random.integers(-3, 4, size).astype(np.float32)
    for special in SPECIAL:
        x[tuple(random.integers(0, one) for one in size)] = special
    return x
