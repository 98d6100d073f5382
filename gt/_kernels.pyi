# GT's own kernels: `run` is the entry of the table (csrc/table), the others fill CPU arrays in
# place (csrc/bind). An object is any CPU tensor or array. By hand; shapes of C++ functions are few
# and change rarely.

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_Array: TypeAlias = npt.NDArray[np.generic]

def calls() -> int: ...
def run(
    name: str,
    arguments: tuple[object, ...],
    make: Callable[[str, tuple[int, ...]], object] | None = None,
    threads: int = 1,
    threads_most: int = 1,
    takes_all: bool = True,
    has_mkl: bool = False,
) -> tuple[Any, ...] | None: ...
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
def attention_kept(kept: object, seeds: object, dropout_p: float) -> None: ...
def paths() -> list[str]: ...
def set_path(name: str) -> None: ...
def set_processor(name: str) -> None: ...

# ---- contiguous arrays of float32 (numpy's, on the CPU); places are int64 ----

_Bools: TypeAlias = npt.NDArray[np.bool_]
_Floats: TypeAlias = npt.NDArray[np.float32]
_Places: TypeAlias = npt.NDArray[np.int64]

def where(condition: _Bools, x: object, y: object, out: object, threads: int = 1) -> None: ...
def adam(
    params: Sequence[_Floats],
    grads: Sequence[_Floats],
    avgs: Sequence[_Floats],
    avg_sqs: Sequence[_Floats],
    max_sqs: Sequence[_Floats],
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
    decoupled: bool,
    maximize: bool,
    threads: int = 1,
) -> None: ...
def sgd(
    params: Sequence[_Floats],
    grads: Sequence[_Floats],
    buffers: Sequence[_Floats],
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first_step: bool,
) -> None: ...
def chain_rows() -> list[str]: ...
def fitting_chain(
    out: _Floats, steps: Sequence[tuple[object, ...]], least: int = 1, threads: int = 1
) -> int: ...
def chain(out: _Floats, steps: Sequence[tuple[object, ...]], threads: int = 1) -> None: ...
def conv2d(
    out: _Floats,
    input: _Floats,
    weight: _Floats,
    bias: _Floats | None,
    window: Sequence[int],
    groups: int = 1,
    threads: int = 1,
) -> None: ...
def conv2d_input_grad(
    input_grad: _Floats,
    grad: _Floats,
    weight: _Floats,
    window: Sequence[int],
    groups: int = 1,
    threads: int = 1,
) -> None: ...
def conv2d_weight_grad(
    weight_grad: _Floats,
    grad: _Floats,
    input: _Floats,
    window: Sequence[int],
    groups: int = 1,
    threads: int = 1,
) -> None: ...
def avg_pool(
    out: _Floats,
    input: _Floats,
    window: Sequence[int],
    counts_padding: bool,
    divisor: int,
    threads: int = 1,
) -> None: ...
def avg_pool_backward(
    input_grad: _Floats,
    grad: _Floats,
    window: Sequence[int],
    counts_padding: bool,
    divisor: int,
    threads: int = 1,
) -> None: ...
def max_pool_backward(
    input_grad: _Floats, grad: _Floats, indices: _Places, threads: int = 1
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

_Matrix: TypeAlias = tuple[int, int, int]
_Rows: TypeAlias = tuple[int, int, int, int]
_Product: TypeAlias = tuple[_Matrix, _Matrix, int, _Matrix, int, bool, int, int, int]

class CudaError(RuntimeError): ...

def cuda_sources() -> list[str]: ...

class Cuda:
    def __init__(
        self, library: str = "libcuda.so.1", images: dict[str, bytes] | None = None
    ) -> None: ...
    def uniform(
        self,
        out: int,
        dtype: str,
        shape: Sequence[int],
        seed: int,
        draw: int,
        low: float,
        high: float,
        global_shape: Sequence[int],
        start: Sequence[int],
        stream: int,
    ) -> None: ...
    def normal(
        self,
        out: int,
        dtype: str,
        shape: Sequence[int],
        seed: int,
        draw: int,
        mean: float,
        std: float,
        global_shape: Sequence[int],
        start: Sequence[int],
        stream: int,
    ) -> None: ...
    def integers(
        self,
        out: int,
        dtype: str,
        shape: Sequence[int],
        seed: int,
        draw: int,
        low: int,
        high: int,
        global_shape: Sequence[int],
        start: Sequence[int],
        stream: int,
    ) -> None: ...
    def bernoulli(
        self,
        out: int,
        dtype: str,
        shape: Sequence[int],
        seed: int,
        draw: int,
        p: float,
        global_shape: Sequence[int],
        start: Sequence[int],
        stream: int,
    ) -> None: ...
    def dropout_mask(
        self,
        out: int,
        dtype: str,
        shape: Sequence[int],
        seed: int,
        draw: int,
        p: float,
        global_shape: Sequence[int],
        start: Sequence[int],
        stream: int,
    ) -> None: ...
    def dropout(
        self,
        x: int,
        out: int,
        keep: int,
        shape: Sequence[int],
        seed: int,
        draw: int,
        p: float,
        scale: float,
        global_shape: Sequence[int],
        start: Sequence[int],
        stream: int,
    ) -> None: ...
    def cross_entropy(
        self,
        dtype: str,
        sizes: tuple[int, int],
        operands: tuple[int, int, int, int, int],
        ignored: int,
        scale: float,
        stream: int,
    ) -> None: ...
    def cross_entropy_backward(
        self,
        dtype: str,
        sizes: tuple[int, int],
        operands: tuple[int, int, int, int, int],
        ignored: int,
        grad_step: int,
        stream: int,
    ) -> None: ...
    def rms_norm(
        self,
        dtype: str,
        sizes: tuple[int, int],
        operands: tuple[int, int, int, int, int, int],
        moments: tuple[int, int],
        eps: float,
        stream: int,
    ) -> None: ...
    def layer_norm(
        self,
        dtype: str,
        sizes: tuple[int, int],
        operands: tuple[int, int, int, int, int, int],
        moments: tuple[int, int],
        eps: float,
        stream: int,
    ) -> None: ...
    @staticmethod
    def norm_blocks(rows: int) -> int: ...
    def norm_backward(
        self,
        dtype: str,
        sizes: tuple[int, int],
        operands: tuple[int, int, int, int],
        moments: tuple[int, int],
        grad_x: int,
        sums: tuple[int, int],
        gradients: tuple[int, int],
        eps: float,
        stream: int,
    ) -> None: ...
    @staticmethod
    def adamw_table_bytes(tensors: int) -> int: ...
    def gemm(
        self,
        layout: str,
        dtype: str,
        product: _Product,
        batches: int,
        scale: float,
        activation: str,
        stream: int,
        path: str = "auto",
    ) -> None: ...
    def attention(
        self,
        dtype: str,
        sizes: tuple[int, int, int, int, int, int],
        operands: tuple[_Rows, _Rows, _Rows],
        options: tuple[int, float, bool, float],
        results: tuple[int, int],
        stream: int,
    ) -> None: ...
    def attention_backward(
        self,
        dtype: str,
        sizes: tuple[int, int, int, int, int, int],
        operands: tuple[_Rows, _Rows, _Rows],
        options: tuple[int, float, bool, float],
        results: tuple[int, int],
        grad: _Rows,
        products: int,
        gradients: tuple[int, int, int],
        stream: int,
    ) -> None: ...
    def allocate(self, device: int, bytes: int) -> int: ...
    def release(self, device: int, address: int) -> None: ...
    def share(self, device: int, address: int) -> bytes: ...
    def open_shared(self, device: int, handle: bytes) -> int: ...
    def close_shared(self, device: int, address: int) -> None: ...
    def collective(
        self,
        name: str,
        dtype: str,
        peers: tuple[list[int], list[int], list[int], list[int], list[int]],
        local: tuple[int, int, int],
        number: int,
        root: int,
        elements: int,
        slots: tuple[int, int],
        error_base: int,
        stream: int,
    ) -> None: ...
    def exchange(
        self,
        element_bytes: int,
        peers: tuple[list[int], list[int], list[int], list[int], list[int], list[int]],
        local: tuple[int, int, int],
        sends: list[tuple[int, int, int] | None],
        receives: list[tuple[int, int, int] | None],
        slots: tuple[int, int],
        stream: int,
    ) -> None: ...
    @staticmethod
    def gemm_table_bytes(products: int) -> int: ...
    def grouped_gemm(
        self,
        layout: str,
        dtype: str,
        products: Sequence[_Product],
        table: int,
        table_bytes: int,
        scale: float,
        activation: str,
        stream: int,
    ) -> None: ...
    def adamw(
        self,
        tensors: Sequence[tuple[int, int, int, int, int]],
        table: int,
        table_bytes: int,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        correction1: float,
        correction2: float,
        stream: int,
    ) -> None: ...
