"""Max pools that always return the places of their values: `max_pool2d_with_indices`
and its like.
"""

import functools
from types import ModuleType
from typing import Any

from gt.nn.functional import fractional, pooling
from gt.nn.functional.pooled import (
    Pair,
    PairOfAdaptiveMaxPool,
    PairOfFractionalMaxPool,
    PairOfMaxPool,
)

__all__ = [
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices", "max_pool1d_with_indices", "max_pool2d_with_indices",
    "max_pool3d_with_indices",
]  # fmt: skip


def _with_indices(module: ModuleType, name: str) -> Any:  # noqa: ANN401 - of the types below
    pool = getattr(module, name)

    @functools.wraps(pool)
    def pooled(*args: object, **named: object) -> Pair:
        named["return_indices"] = True
        pair: Pair = pool(*args, **named)
        return pair

    pooled.__name__ = pooled.__qualname__ = f"{name}_with_indices"
    pooled.__doc__ = f"The values of `{name}` and the places that they come from."
    return pooled


adaptive_max_pool1d_with_indices: PairOfAdaptiveMaxPool = _with_indices(
    pooling, "adaptive_max_pool1d"
)
adaptive_max_pool2d_with_indices: PairOfAdaptiveMaxPool = _with_indices(
    pooling, "adaptive_max_pool2d"
)
adaptive_max_pool3d_with_indices: PairOfAdaptiveMaxPool = _with_indices(
    pooling, "adaptive_max_pool3d"
)
fractional_max_pool2d_with_indices: PairOfFractionalMaxPool = _with_indices(
    fractional, "fractional_max_pool2d"
)
fractional_max_pool3d_with_indices: PairOfFractionalMaxPool = _with_indices(
    fractional, "fractional_max_pool3d"
)
max_pool1d_with_indices: PairOfMaxPool = _with_indices(pooling, "max_pool1d")
max_pool2d_with_indices: PairOfMaxPool = _with_indices(pooling, "max_pool2d")
max_pool3d_with_indices: PairOfMaxPool = _with_indices(pooling, "max_pool3d")
