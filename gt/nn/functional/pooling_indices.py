"""Maximum pools that always give the places of their values: `max_pool2d_with_indices` and kin."""

import functools
from collections.abc import Callable
from typing import ParamSpec

from gt._core import Tensor
from gt.nn.functional import fractional, pooling

P = ParamSpec("P")
Pair = tuple[Tensor, Tensor]

__all__ = [
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices", "max_pool1d_with_indices", "max_pool2d_with_indices",
    "max_pool3d_with_indices",
]  # fmt: skip


def _with_indices(pool: Callable[P, object]) -> Callable[P, Pair]:
    @functools.wraps(pool)
    def pooled(*args: P.args, **named: P.kwargs) -> Pair:
        named["return_indices"] = True
        pair: Pair = pool(*args, **named)  # type: ignore[assignment] # with places there are two
        return pair

    pooled.__name__ = pooled.__qualname__ = f"{pool.__name__}_with_indices"
    pooled.__doc__ = f"The values of `{pool.__name__}` and the places that they come from."
    return pooled


adaptive_max_pool1d_with_indices = _with_indices(pooling.adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = _with_indices(pooling.adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = _with_indices(pooling.adaptive_max_pool3d)
fractional_max_pool2d_with_indices = _with_indices(fractional.fractional_max_pool2d)
fractional_max_pool3d_with_indices = _with_indices(fractional.fractional_max_pool3d)
max_pool1d_with_indices = _with_indices(pooling.max_pool1d)
max_pool2d_with_indices = _with_indices(pooling.max_pool2d)
max_pool3d_with_indices = _with_indices(pooling.max_pool3d)
