"""GT's CUDA kernels on torch's tensors: checks of the operands, memory for the results.

`gt._kernels.Cuda` launches by address and checks no tensor.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gt import config
from gt.worker.cuda.attention import CudaAttention
from gt.worker.cuda.device import CudaDevice, RefusedError, spanned
from gt.worker.cuda.rows import CudaRows
from gt.worker.random_place import Place, Size

if TYPE_CHECKING:
    from gt._kernels import Cuda

# Limit of dims in which a box may be cut (csrc/algo/box_runs.h).
DIMS_MAX = 8
HALVES = (torch.bfloat16, torch.float16)
FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32)
# Elements in a copy of 16 bytes, and limit of products in one launch (csrc/cuda/host/products.cpp).
STEP = 8
PRODUCTS_MAX = 65535
# Address, distance of rows, and distance of batches, both in elements.
_Matrix = tuple[int, int, int]
_Product = tuple[_Matrix, _Matrix, int, _Matrix, int, bool, int, int, int]
# Number of values of each kind in the trial: several blocks of the generator and a part of one.
PROBE_ELEMENTS = 1021


@dataclasses.dataclass(frozen=True)
class AdamwStep:
    """Numbers of one step of AdamW; `step` counts from 1."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    step: int


class CudaKernels:
    """Kernels of one device.

    Operands must be contiguous and on that device; results are too. Nothing waits for a launch.

    Args:
        cuda: The launcher.
        device: Device of every tensor.
        stream: Function that returns the stream on which torch computes at this moment.
    """

    def __init__(self, cuda: Cuda, device: torch.device, stream: Callable[[], int]) -> None:
        self._cuda = cuda
        self.device = device
        self._stream = stream
        self.on = CudaDevice(cuda, device, self.address, stream)
        self.attention = CudaAttention(self.on)
        self.rows = CudaRows(self.on)

    def address(self, name: str, tensor: Tensor | None, dtype: torch.dtype) -> int:
        """Address of a tensor's first element; 0 for None. TypeError or ValueError for one that no
        kernel takes.
        """
        if tensor is None:
            return 0
        if tensor.device != self.device:
            raise ValueError(f"{name} is on {tensor.device}, these kernels run on {self.device}")
        if tensor.dtype != dtype:
            raise TypeError(f"{name} has dtype {tensor.dtype}, the CUDA kernel takes {dtype}")
        if not tensor.is_contiguous():
            shape, strides = tuple(tensor.shape), tensor.stride()
            raise ValueError(f"{name} {shape} with strides {strides} is not contiguous")
        return tensor.data_ptr()

    @staticmethod
    def fills(kind: str, dtype: torch.dtype, size: Size) -> bool:
        """True if `fill` takes these arguments."""
        dtypes = {"uniform": FLOATING, "normal": FLOATING, "integers": INTEGERS}
        return dtype in dtypes.get(kind, (torch.bool,)) and len(size) <= DIMS_MAX

    def fill(self, kind: str, out: Tensor, place: Place, *limits: float) -> Tensor:
        """Random values of `kind`, a function of gt._kernels, with its bits; returns `out`."""
        whole, start = place.box(tuple(out.shape))
        launch = getattr(self._cuda, kind)
        launch(
            self.address("out", out, out.dtype),
            str(out.dtype).removeprefix("torch."),
            tuple(out.shape),
            *place.words,
            *limits,
            whole,
            start,
            self._stream(),
        )
        return out

    @staticmethod
    def drops(x: Tensor) -> bool:
        """True if `dropout` takes the operand."""
        return x.dtype == torch.float32 and x.is_contiguous() and x.dim() <= DIMS_MAX

    def dropout(self, x: Tensor, p: float, place: Place) -> tuple[Tensor, Tensor]:
        """`x * mask / (1 - p)` of float32, and the mask of kept elements; PyTorch's values."""
        out, keep = torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
        whole, start = place.box(tuple(x.shape))
        scale = 0.0 if p == 1 else 1 / (1 - p)
        self._cuda.dropout(
            self.address("x", x, torch.float32),
            self.address("out", out, torch.float32),
            self.address("keep", keep, torch.bool),
            tuple(x.shape),
            *place.words,
            p,
            scale,
            whole,
            start,
            self._stream(),
        )
        return out, keep

    @staticmethod
    def multiplies(a: Tensor, b: Tensor) -> bool:
        """True if `gemm` takes these operands."""
        try:
            product_layout(a, b)
        except RefusedError:
            return False
        return True

    def gemm(
        self,
        a: Tensor,
        b: Tensor,
        *,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        activation: str = "none",
        scale: float = 1.0,
        out_dtype: torch.dtype | None = None,
        path: str = "auto",
    ) -> Tensor:
        """activation(scale * a @ b + bias) + residual, with sums in float32.

        Args:
            a: [m, k] or [batch, m, k] of bfloat16 or float16; it may be transposed, as b may, but
                not both, and neighbouring elements in memory come in multiples of 8.
            b: [k, n] or [batch, k, n]; n is even.
            bias: [n].
            residual: [..., m, n] as the result, without gaps between the elements of a row.
            activation: none, relu, gelu or silu.
            scale: Factor of the product.
            out_dtype: float32; else the operands' dtype.
            path: auto takes the kernel for the device; sm_80 and sm_90a name one.
        """
        layout = product_layout(a, b)
        shape = (*a.shape[:-1], b.shape[-1])
        if bias is not None and bias.shape != shape[-1:]:
            raise ValueError(f"gemm: bias {tuple(bias.shape)} for {shape[-1]} columns")
        if residual is not None and (residual.shape != shape or residual.stride(-1) != 1):
            raise ValueError(f"gemm: residual {tuple(residual.shape)} {residual.stride()}")
        out = a.new_empty(shape, dtype=out_dtype or a.dtype)
        product = self._product(layout, a, b, bias, residual, out)
        batches = math.prod(shape[:-2])
        dtype = str(a.dtype).removeprefix("torch.")
        options = (scale, activation, self._stream(), path)
        self._cuda.gemm(layout, dtype, product, batches, *options)
        return out

    def grouped_gemm(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Products [m, k] @ [k, n] of one dtype and storage order, by one launch."""
        layouts = {product_layout(a, b) for a, b in pairs}
        dtypes = {a.dtype for a, _ in pairs}
        if len(layouts) != 1 or len(dtypes) != 1 or any(a.dim() != 2 for a, _ in pairs):
            raise ValueError(f"grouped_gemm: products of {dtypes}, stored as {layouts}")
        (layout,), (dtype,) = layouts, dtypes
        results = [a.new_empty(a.shape[0], b.shape[1]) for a, b in pairs]
        products = [
            self._product(layout, a, b, None, None, out)
            for (a, b), out in zip(pairs, results, strict=True)
        ]
        size = self._cuda.gemm_table_bytes(len(products))
        table = torch.empty(size, dtype=torch.uint8, device=self.device)
        address = self.address("table", table, torch.uint8)
        name = str(dtype).removeprefix("torch.")
        rest = (address, size, 1.0, "none", self._stream())
        self._cuda.grouped_gemm(layout, name, products, *rest)
        return results

    def _product(
        self,
        layout: str,
        a: Tensor,
        b: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        out: Tensor,
    ) -> _Product:
        """A product in the form of gt._kernels."""
        return (
            self._matrix("a", a, a.dtype, is_turned=layout[0] == "t"),
            self._matrix("b", b, a.dtype, is_turned=layout[1] == "t"),
            self.address("bias", bias, a.dtype),
            (0, 0, 0) if residual is None else self._matrix("residual", residual, a.dtype),
            self.address("out", out, out.dtype),
            out.dtype == torch.float32,
            a.shape[-2],
            b.shape[-1],
            a.shape[-1],
        )

    def _matrix(
        self, name: str, x: Tensor, dtype: torch.dtype, *, is_turned: bool = False
    ) -> _Matrix:
        """Address, row step and batch step of a matrix that is stored in rows."""
        shape, steps = x.shape, x.stride()
        elements = spanned(shape, steps)
        address = self.address(name, x.as_strided((elements,), (1,)), dtype)
        row, column = (-1, -2) if is_turned else (-2, -1)
        step = steps[row] if shape[row] > 1 else _round_up(shape[column])
        return address, step, steps[0] if len(shape) == 3 else 0

    def adamw(
        self,
        parameters: Sequence[Tensor],
        gradients: Sequence[Tensor],
        means: Sequence[Tensor],
        squares: Sequence[Tensor],
        step: AdamwStep,
    ) -> None:
        """One step of torch.optim.AdamW for tensors of float32, in place, by one launch."""
        rows = []
        for group in zip(parameters, gradients, means, squares, strict=True):
            shapes = [tuple(tensor.shape) for tensor in group]
            if len(set(shapes)) > 1:
                raise ValueError(f"adamw: parameter, gradient and state have the shapes {shapes}")
            parameter, gradient, mean, square = (
                self.address("parameter, gradient or state", tensor, torch.float32)
                for tensor in group
            )
            rows.append((parameter, gradient, mean, square, group[0].numel()))
        size = self._cuda.adamw_table_bytes(len(rows))
        # Alive until the launch has run: torch's allocator reuses memory in a stream's order.
        table = torch.empty(size, dtype=torch.uint8, device=self.device)
        self._cuda.adamw(
            rows,
            self.address("table", table, torch.uint8),
            size,
            step.lr,
            step.beta1,
            step.beta2,
            step.eps,
            step.weight_decay,
            1 - step.beta1**step.step,
            1 - step.beta2**step.step,
            self._stream(),
        )


def product_layout(a: Tensor, b: Tensor) -> str:
    """Layout of a product's operands, as csrc/cuda/gemm.h names it.

    Raises:
        RefusedError: No kernel multiplies them.
    """
    if a.dtype != b.dtype or a.dtype not in HALVES:
        raise _unmultiplied(a, b, f"{a.dtype} and {b.dtype}")
    left, right = a.shape, b.shape
    if len(left) not in (2, 3) or right[:-1] != (*left[:-2], left[-1]):
        raise _unmultiplied(a, b, "the shapes")
    if right[-1] % 2:
        raise _unmultiplied(a, b, "an odd number of columns")
    if len(left) == 3 and left[0] > PRODUCTS_MAX:
        raise _unmultiplied(a, b, f"more than {PRODUCTS_MAX} products")
    is_aligned = a.data_ptr() % 16 == 0 and b.data_ptr() % 16 == 0
    orders = _order(a) + _order(b) if is_aligned else ""
    if orders == "tt":
        raise _unmultiplied(a, b, "two transposed operands")
    if len(orders) != 2:
        reason = f"rows that do not begin and end at multiples of {STEP} elements"
        raise _unmultiplied(a, b, reason)
    return orders


def _unmultiplied(a: Tensor, b: Tensor, reason: str) -> RefusedError:
    shapes = f"{tuple(a.shape)} {a.stride()} and {tuple(b.shape)} {b.stride()}"
    return RefusedError(reason, f"gemm: no kernel multiplies {reason}: {a.dtype} {shapes}")


def _order(x: Tensor) -> str:
    """n for rows without gaps in steps that a copy of 16 bytes takes; t for such columns."""
    *batch, rows, columns = x.shape
    *batch_steps, row, column = x.stride()
    if batch and batch_steps[0] % STEP:
        return ""
    if _is_side_by_side(rows, columns, row, column):
        return "n"
    return "t" if _is_side_by_side(columns, rows, column, row) else ""


def _is_side_by_side(count: int, length: int, step: int, inner: int) -> bool:
    is_spaced = count <= 1 or (step % STEP == 0 and step >= length)
    return inner == 1 and length % STEP == 0 and is_spaced


def _round_up(count: int) -> int:
    return (count + STEP - 1) // STEP * STEP


def open_for(device: torch.device) -> CudaKernels | None:
    """The kernels of a device; None, with the reason on stderr, if torch's kernels run instead.

    GT_KERNELS=off and the CPU give None without a message.
    """
    if device.type != "cuda" or config.own_kernels() == "off":
        return None

    def stream() -> int:
        return torch.cuda.current_stream(device).cuda_stream

    try:
        module = importlib.import_module("gt._kernels")
        if not module.cuda_sources():
            _say("this build holds none (there was no nvcc)")
            return None
        kernels = CudaKernels(module.Cuda(), device, stream)
        return checked(kernels, module)
    except (ImportError, RuntimeError) as error:
        _say(str(error))
        return None


def checked(made: CudaKernels, host: ModuleType) -> CudaKernels | None:
    """The kernels; None, with a message, if their random numbers differ from the host's."""
    for kind, limits in (("uniform", (-2.0, 3.0)), ("normal", (1.0, 2.0))):
        out = torch.empty(PROBE_ELEMENTS, device=made.device)
        made.fill(kind, out, Place(7, 11), *limits)
        expected = torch.empty(PROBE_ELEMENTS)
        getattr(host, kind)(expected.numpy(), 7, 11, *limits, [PROBE_ELEMENTS], [0])
        if not torch.equal(out.cpu(), expected):
            _say(f"its {kind} random numbers differ from those of the CPU")
            return None
    return made


def _say(reason: str) -> None:
    sys.stderr.write(f"gt.worker: PyTorch runs in place of GT's own CUDA kernels: {reason}\n")
