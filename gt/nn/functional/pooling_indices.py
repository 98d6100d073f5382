"""Maximum pools that always give the places of their values: `max_pool2d_with_indices` and kin."""

import functools
from collections.abc import Callable
from types import ModuleType

from gt._core import Tensor
from gt.nn.functional import fractional, pooling

Pair = tuple[Tensor, Tensor]

__all__ = [
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices", "max_pool1d_with_indices", "max_pool2d_with_indices",
    "max_pool3d_with_indices",
]  # fmt: skip


def _with_indices(module: ModuleType, name: str) -> Callable[..., Pair]:
    pool = getattr(module, name)

    @functools.wraps(pool)
    def pooled(*args: object, **named: object) -> Pair:
        pair: Pair = pool(*args, **{**named, "return_indices": True})
        return pair

    pooled.__name__ = pooled.__qualname__ = f"{name}_with_indices"
    pooled.__doc__ = f"The values of `{name}` and the places that they come from."
    return pooled


adaptive_max_pool1d_with_indices = _with_indices(pooling, "adaptive_max_pool1d")
adaptive_max_pool2d_with_indices = _with_indices(pooling, "adaptive_max_pool2d")
adaptive_max_pool3d_with_indices = _with_indices(pooling, "adaptive_max_pool3d")
fractional_max_pool2d_with_indices = _with_indices(fractional, "fractional_max_pool2d")
fractional_max_pool3d_with_indices = _with_indices(fractional, "fractional_max_pool3d")
max_pool1d_with_indices = _with_indices(pooling, "max_pool1d")
max_pool2d_with_indices = _with_indices(pooling, "max_pool2d")
max_pool3d_with_indices = _with_indices(pooling, "max_pool3d")
