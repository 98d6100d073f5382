"""Kernels of rows by GT's CUDA kernels: cross-entropy, RMSNorm, LayerNorm, and their gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gt.worker.cuda_device import CudaDevice

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class NormGradients(NamedTuple):
    """Of x (and of the residual alike), the weight, and the bias of LayerNorm."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None


class CudaRows:
    """Row kernels of one device, in float32, bfloat16 and float16 with sums in float32.

    Operands of a call have one dtype and are contiguous. Nothing waits for a launch.

    Args:
        on: The device.
    """

    def __init__(self, on: CudaDevice) -> None:
        self._cuda, _, self._address, self._stream = on

    def cross_entropy(
        self, logits: Tensor, targets: Tensor, scale: float | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Each row's softmax cross-entropy; with `scale` also its gradient times that.

        Args:
            logits: [rows, classes].
            targets: [rows] of int64, all less than classes: nobody checks them on a GPU. A
                negative one gives 0, as PyTorch's ignore_index of -100 does.
            scale: Of the gradient, 1 / rows for a mean.

        Returns:
            [rows] of float32, and the gradient of the dtype of `logits`.
        """
        dtype, sizes = _rows_of(logits)
        if targets.shape != sizes[:1]:
            raise ValueError(f"targets {tuple(targets.shape)} do not fit {sizes[0]} rows of logits")
        loss = torch.empty(sizes[0], dtype=torch.float32, device=logits.device)
        gradient = None if scale is None else torch.empty_like(logits)
        operands = (
            self._address("logits", logits, logits.dtype),
            self._address("targets", targets, torch.int64),
            self._address("loss", loss, torch.float32),
            self._address("gradient", gradient, logits.dtype),
        )
        self._cuda.cross_entropy(dtype, sizes, operands, scale or 0.0, self._stream())
        return loss, gradient

    def rms_norm(
        self, x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """RMSNorm over the last dim of x + residual, and that sum (`x` itself without one)."""
        return self._norm(x, weight, None, eps, residual)

    def layer_norm(
        self, x: Tensor, weight: Tensor, bias: Tensor, eps: float, residual: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """LayerNorm over the last dim of x + residual, and that sum (`x` itself without one)."""
        return self._norm(x, weight, bias, eps, residual)

    def _norm(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        eps: float,
        residual: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        kind = "rms_norm" if bias is None else "layer_norm"
        dtype, sizes = _rows_of(x)
        _check_parameters(kind, sizes[1], weight, bias)
        if residual is not None and residual.shape != x.shape:
            raise ValueError(f"{kind}: residual {tuple(residual.shape)}, x {tuple(x.shape)}")
        out = torch.empty_like(x)
        total = None if residual is None else torch.empty_like(x)
        operands = (
            self._address("x", x, x.dtype),
            self._address("residual", residual, x.dtype),
            self._address("weight", weight, x.dtype),
            self._address("bias", bias, x.dtype),
            self._address("total", total, x.dtype),
            self._address("out", out, x.dtype),
        )
        run = self._cuda.rms_norm if bias is None else self._cuda.layer_norm
        run(dtype, sizes, operands, eps, self._stream())
        return out, x if total is None else total

    def norm_backward(
        self,
        grad: Tensor,
        total: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        eps: float,
        grad_total: Tensor | None = None,
    ) -> NormGradients:
        """Gradients of a norm; the same bits at each run.

        Args:
            grad: Of the result.
            total: What was normalized: the second result of rms_norm or layer_norm.
            weight: As it was there.
            bias: As it was there; None for RMSNorm.
            eps: As it was there.
            grad_total: Of `total`, from where it is used besides; added.
        """
        dtype, sizes = _rows_of(total)
        _check_parameters("norm_backward", sizes[1], weight, bias)
        for name, one in (("grad", grad), ("grad_total", grad_total)):
            if one is not None and one.shape != total.shape:
                shapes = f"{name} {tuple(one.shape)}, total {tuple(total.shape)}"
                raise ValueError(f"norm_backward: {shapes}")
        made = NormGradients(
            torch.empty_like(total),
            torch.empty_like(weight),
            None if bias is None else torch.empty_like(bias),
        )
        shape = (self._cuda.norm_blocks(sizes[0]), sizes[1])
        weight_sums = torch.empty(shape, dtype=torch.float32, device=total.device)
        bias_sums = None if bias is None else torch.empty_like(weight_sums)
        self._cuda.norm_backward(
            dtype,
            sizes,
            (
                self._address("saved total", total, total.dtype),
                self._address("weight", weight, total.dtype),
                self._address("grad", grad, total.dtype),
                self._address("grad_total", grad_total, total.dtype),
            ),
            self._address("grad_x", made.x, total.dtype),
            (
                self._address("weight_sums", weight_sums, torch.float32),
                self._address("bias_sums", bias_sums, torch.float32),
            ),
            (
                self._address("grad_weight", made.weight, total.dtype),
                self._address("grad_bias", made.bias, total.dtype),
            ),
            eps,
            self._stream(),
        )
        return made


def _check_parameters(kind: str, columns: int, weight: Tensor, bias: Tensor | None) -> None:
    for parameter in (weight, bias):
        if parameter is not None and parameter.shape != (columns,):
            raise ValueError(f"{kind}: a parameter {tuple(parameter.shape)} for {columns}")


def _rows_of(x: Tensor) -> tuple[str, tuple[int, int]]:
    """The dtype's name; rows and columns."""
    if x.dtype not in DTYPES:
        raise TypeError(f"no CUDA kernel of rows takes {x.dtype}")
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"{tuple(x.shape)} has no rows with elements")
    columns = x.shape[-1]
    return str(x.dtype).removeprefix("torch."), (x.numel() // columns, columns)
