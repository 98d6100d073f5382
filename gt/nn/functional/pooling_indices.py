"""Maximum pools that always give the places of their values: `max_pool2d_with_indices` and kin."""

import functools
<<<<<<< HEAD
from collections.abc import Callable
from types import ModuleType
=======
from types import ModuleType
from typing import Any
>>>>>>> 0ab3821a (A backward pass refuses writes to operands and results where PyTorch's does, for composed operators too: 46 functions fewer that allow them, 5 fewer that refuse them; gradients of the nine that stay are compared with those before the write)

from gt.nn.functional import fractional, pooling
<<<<<<< HEAD

Pair = tuple[Tensor, Tensor]
=======
from gt.nn.functional.pooled import (
    Pair,
    PairOfAdaptiveMaxPool,
    PairOfFractionalMaxPool,
    PairOfMaxPool,
)
>>>>>>> 0ab3821a (A backward pass refuses writes to operands and results where PyTorch's does, for composed operators too: 46 functions fewer that allow them, 5 fewer that refuse them; gradients of the nine that stay are compared with those before the write)

__all__ = [
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d_with_indices", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices", "max_pool1d_with_indices", "max_pool2d_with_indices",
    "max_pool3d_with_indices",
]  # fmt: skip


<<<<<<< HEAD
def _with_indices(module: ModuleType, name: str) -> Callable[..., Pair]:
=======
def _with_indices(module: ModuleType, name: str) -> Any:  # noqa: ANN401 - of the types below
>>>>>>> 0ab3821a (A backward pass refuses writes to operands and results where PyTorch's does, for composed operators too: 46 functions fewer that allow them, 5 fewer that refuse them; gradients of the nine that stay are compared with those before the write)
    pool = getattr(module, name)

    @functools.wraps(pool)
    def pooled(*args: object, **named: object) -> Pair:
<<<<<<< HEAD
        pair: Pair = pool(*args, **{**named, "return_indices": True})
=======
        named["return_indices"] = True
        pair: Pair = pool(*args, **named)
>>>>>>> 0ab3821a (A backward pass refuses writes to operands and results where PyTorch's does, for composed operators too: 46 functions fewer that allow them, 5 fewer that refuse them; gradients of the nine that stay are compared with those before the write)
        return pair

    pooled.__name__ = pooled.__qualname__ = f"{name}_with_indices"
    pooled.__doc__ = f"The values of `{name}` and the places that they come from."
    return pooled


<<<<<<< HEAD
adaptive_max_pool1d_with_indices = _with_indices(pooling, "adaptive_max_pool1d")
adaptive_max_pool2d_with_indices = _with_indices(pooling, "adaptive_max_pool2d")
adaptive_max_pool3d_with_indices = _with_indices(pooling, "adaptive_max_pool3d")
fractional_max_pool2d_with_indices = _with_indices(fractional, "fractional_max_pool2d")
fractional_max_pool3d_with_indices = _with_indices(fractional, "fractional_max_pool3d")
max_pool1d_with_indices = _with_indices(pooling, "max_pool1d")
max_pool2d_with_indices = _with_indices(pooling, "max_pool2d")
max_pool3d_with_indices = _with_indices(pooling, "max_pool3d")
=======
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
>>>>>>> 0ab3821a (A backward pass refuses writes to operands and results where PyTorch's does, for composed operators too: 46 functions fewer that allow them, 5 fewer that refuse them; gradients of the nine that stay are compared with those before the write)
