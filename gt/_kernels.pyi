# GT's own kernels (csrc/bind): they fill CPU arrays in place. An object is any CPU tensor or
# array. By hand; shapes of C++ functions are few and change rarely.

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Array: TypeAlias = npt.NDArray[np.generic]

def uniform(
    out: _Array,
    seed: int,
    draw: int,
    low: float,
    high: float,
    global_shape: Sequence[int],
    start: Sequence[int],
    threads: int = 1,
) -> None: ...
def normal(
    out: _Array,
    seed: int,
    draw: int,
    mean: float,
    std: float,
    global_shape: Sequence[int],
    start: Sequence[int],
    threads: int = 1,
) -> None: ...
def integers(
    out: _Array,
    seed: int,
    draw: int,
    low: int,
    high: int,
    global_shape: Sequence[int],
    start: Sequence[int],
    threads: int = 1,
) -> None: ...
def bernoulli(
    out: _Array,
    seed: int,
    draw: int,
    p: float,
    global_shape: Sequence[int],
    start: Sequence[int],
    threads: int = 1,
) -> None: ...
def dropout_mask(
    out: _Array,
    seed: int,
    draw: int,
    p: float,
    global_shape: Sequence[int],
    start: Sequence[int],
    threads: int = 1,
) -> None: ...
def philox(out: _Array, seed: int, draw: int, first_block: int) -> None: ...
def matmul(
    out: object,
    a: object,
    b: object,
    bias: object = None,
    residual: object = None,
    activation: str = "none",
    scale: float = 1.0,
    threads: int = 1,
) -> None: ...
def paths() -> list[str]: ...
def set_path(name: str) -> None: ...
