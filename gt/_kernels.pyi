# GT's own kernels (csrc/bind): they fill CPU arrays in place. An object is any CPU tensor or
# array; recurrent layers get addresses. By hand; shapes of C++ functions are few and change rarely.

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
def attention(
    output: object,
    logsumexp: object,
    query: object,
    key: object,
    value: object,
    attn_mask: object | None,
    is_causal: bool,
    scale: float,
    threads: int = 1,
) -> None: ...
def attention_backward(
    grad_query: object,
    grad_key: object,
    grad_value: object,
    grad: object,
    output: object,
    logsumexp: object,
    query: object,
    key: object,
    value: object,
    attn_mask: object | None,
    is_causal: bool,
    scale: float,
    threads: int = 1,
) -> None: ...
def paths() -> list[str]: ...
def set_path(name: str) -> None: ...
def recurrent_forward(
    kind: str,
    steps: int,
    rows: int,
    units: int,
    reverse: bool,
    threads: int,
    gates: int,
    hidden: int,
    cell: int,
    weight: int,
    bias: int,
    output: int,
    cells: int,
    activations: int,
) -> None: ...
def recurrent_backward(
    kind: str,
    steps: int,
    rows: int,
    units: int,
    reverse: bool,
    threads: int,
    grad: int,
    grad_cells: int,
    hidden: int,
    cell: int,
    weight: int,
    output: int,
    cells: int,
    activations: int,
    grads: int,
    grads_state: int,
    grad_hidden: int,
    grad_cell: int,
) -> None: ...
def max_pool(
    out: object,
    indices: object,
    input: object,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    threads: int = 1,
) -> None: ...
