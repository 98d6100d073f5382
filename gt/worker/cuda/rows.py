"""Row kernels of GT on CUDA: cross-entropy, RMSNorm, LayerNorm, and their gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gt.worker.cuda.device import CudaDevice

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


IGNORE_INDEX = -100


class Losses(NamedTuple):
    """Loss of each row in float32; then the results that were asked for, in the logits' shape and
    dtype.
    """

    loss: Tensor
    gradient: Tensor | None
    log_probs: Tensor | None


class Moments(NamedTuple):
    """Mean and 1 / sqrt(variance + eps) of each normalized row, in float32.

    RMSNorm has no mean, and its variance is the mean of squares.
    """

    mean: Tensor | None
    rstd: Tensor


class NormGradients(NamedTuple):
    """Gradients of x (and of the residual alike), of the weight, and of the bias of LayerNorm."""

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
        self,
        logits: Tensor,
        targets: Tensor,
        scale: float | None = None,
        ignore_index: int = IGNORE_INDEX,
        *,
        keeps_log_probs: bool = False,
    ) -> Losses:
        """Each row's softmax cross-entropy; with `scale` also its gradient times that.

        Args:
            logits: [rows, classes].
            targets: [rows] of int64. One that is no class ends the launch with an error, as it
                does PyTorch's.
            scale: Factor of the gradient, 1 / rows for a mean.
            ignore_index: Target whose rows give 0.
            keeps_log_probs: True returns the logits' log-softmax too.
        """
        dtype, sizes = _rows_of(logits)
        _check_targets(targets, sizes)
        losses = Losses(
            torch.empty(sizes[0], dtype=torch.float32, device=logits.device),
            None if scale is None else torch.empty_like(logits),
            torch.empty_like(logits) if keeps_log_probs else None,
        )
        operands = (
            self._address("logits", logits, logits.dtype),
            self._address("targets", targets, torch.int64),
            self._address("loss", losses.loss, torch.float32),
            self._address("gradient", losses.gradient, logits.dtype),
            self._address("log_probs", losses.log_probs, logits.dtype),
        )
        numbers = (ignore_index, scale or 0.0, self._stream())
        self._cuda.cross_entropy(dtype, sizes, operands, *numbers)
        return losses

    def cross_entropy_backward(
        self,
        grad: Tensor,
        log_probs: Tensor,
        targets: Tensor,
        total: Tensor | None,
        ignore_index: int = IGNORE_INDEX,
    ) -> Tensor:
        """The logits' gradient.

        Args:
            grad: Gradient of each row's loss, [rows]; or one element for all.
            log_probs: Result of `cross_entropy`.
            targets: [rows], as in `cross_entropy`.
            total: Divisor of `grad`, one element; None for 1.
            ignore_index: Target whose rows give 0.
        """
        dtype, sizes = _rows_of(log_probs)
        _check_targets(targets, sizes)
        if grad.numel() != 1 and grad.shape != sizes[:1]:
            raise ValueError(f"grad {tuple(grad.shape)} does not fit {sizes[0]} rows")
        if total is not None and total.numel() != 1:
            raise ValueError(f"total {tuple(total.shape)} has more than one element")
        gradient = torch.empty_like(log_probs)
        operands = (
            self._address("saved log_probs", log_probs, log_probs.dtype),
            self._address("targets", targets, torch.int64),
            self._address("grad", grad, log_probs.dtype),
            self._address("saved total", total, log_probs.dtype),
            self._address("gradient", gradient, log_probs.dtype),
        )
        numbers = (ignore_index, int(grad.numel() != 1), self._stream())
        self._cuda.cross_entropy_backward(dtype, sizes, operands, *numbers)
        return gradient

    def rms_norm(
        self,
        x: Tensor,
        weight: Tensor | None,
        eps: float,
        residual: Tensor | None = None,
        rstd: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """RMSNorm over the last dim of x + residual, and that sum (`x` itself without one).

        Args:
            x: [..., columns].
            weight: [columns]; None for ones.
            eps: Added to the mean of squares.
            residual: [..., columns], as `x`.
            rstd: Memory for an element a row, which the gradient reads.
        """
        moments = None if rstd is None else Moments(None, rstd)
        return self._norm("rms_norm", x, (weight, None), eps, residual, moments)

    def layer_norm(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        residual: Tensor | None = None,
        moments: Moments | None = None,
    ) -> tuple[Tensor, Tensor]:
        """LayerNorm over the last dim of x + residual, and that sum (`x` itself without one).

        Args:
            x: [..., columns].
            weight: [columns]; None for ones.
            bias: [columns]; None for zeros.
            eps: Added to the variance.
            residual: [..., columns], as `x`.
            moments: Memory for an element a row each, which the gradient reads.
        """
        return self._norm("layer_norm", x, (weight, bias), eps, residual, moments)

    def _norm(
        self,
        kind: str,
        x: Tensor,
        parameters: tuple[Tensor | None, Tensor | None],
        eps: float,
        residual: Tensor | None,
        moments: Moments | None,
    ) -> tuple[Tensor, Tensor]:
        weight, bias = parameters
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
        run = self._cuda.layer_norm if kind == "layer_norm" else self._cuda.rms_norm
        run(dtype, sizes, operands, self._moments("", moments, sizes[0]), eps, self._stream())
        return out, x if total is None else total

    def _moments(self, kept: str, moments: Moments | None, rows: int) -> tuple[int, int]:
        if moments is None:
            return 0, 0
        present = [one for one in moments if one is not None]
        if any(one.numel() != rows for one in present):
            shapes = " and ".join(str(tuple(one.shape)) for one in present)
            raise ValueError(f"mean and rstd {shapes} do not fit {rows} rows")
        mean, rstd = (
            self._address(kept + name, one, torch.float32)
            for name, one in zip(Moments._fields, moments, strict=True)
        )
        return mean, rstd

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
            grad: Gradient of the result.
            total: The normalized sum: the second result of rms_norm or layer_norm.
            weight: Weight of the forward.
            bias: Bias of the forward; None for RMSNorm.
            eps: eps of the forward.
            grad_total: Gradient of `total` from its other uses, which is added.
        """
        _check_parameters("norm_backward", _rows_of(total)[1][1], weight, bias)
        is_centered = bias is not None
        return self._backward(grad, total, weight, grad_total, eps, is_centered=is_centered)

    def layer_norm_backward(
        self, grad: Tensor, x: Tensor, moments: Moments, weight: Tensor | None
    ) -> NormGradients:
        """Gradients of LayerNorm from its saved moments; those of parameters even if there are
        none.
        """
        return self._backward(grad, x, weight, None, 0.0, moments=moments, is_centered=True)

    def rms_norm_backward(
        self, grad: Tensor, x: Tensor, rstd: Tensor, weight: Tensor | None
    ) -> NormGradients:
        """Gradients of RMSNorm."""
        moments = Moments(None, rstd)
        return self._backward(grad, x, weight, None, 0.0, moments=moments, is_centered=False)

    def _backward(
        self,
        grad: Tensor,
        total: Tensor,
        weight: Tensor | None,
        grad_total: Tensor | None,
        eps: float,
        *,
        is_centered: bool,
        moments: Moments | None = None,
    ) -> NormGradients:
        dtype, sizes = _rows_of(total)
        _check_parameters("norm_backward", sizes[1], weight)
        for name, one in (("grad", grad), ("grad_total", grad_total)):
            if one is not None and one.shape != total.shape:
                shapes = f"{name} {tuple(one.shape)}, total {tuple(total.shape)}"
                raise ValueError(f"norm_backward: {shapes}")
        gradients = NormGradients(
            torch.empty_like(total),
            total.new_empty(sizes[1]),
            total.new_empty(sizes[1]) if is_centered else None,
        )
        shape = (self._cuda.norm_blocks(sizes[0]), sizes[1])
        weight_sums = torch.empty(shape, dtype=torch.float32, device=total.device)
        bias_sums = torch.empty_like(weight_sums) if is_centered else None
        self._cuda.norm_backward(
            dtype,
            sizes,
            (
                self._address("saved total", total, total.dtype),
                self._address("weight", weight, total.dtype),
                self._address("grad", grad, total.dtype),
                self._address("grad_total", grad_total, total.dtype),
            ),
            self._moments("saved ", moments, sizes[0]),
            self._address("grad_x", gradients.x, total.dtype),
            (
                self._address("weight_sums", weight_sums, torch.float32),
                self._address("bias_sums", bias_sums, torch.float32),
            ),
            (
                self._address("grad_weight", gradients.weight, total.dtype),
                self._address("grad_bias", gradients.bias, total.dtype),
            ),
            eps,
            self._stream(),
        )
        return gradients


def _check_targets(targets: Tensor, sizes: tuple[int, int]) -> None:
    if targets.shape != sizes[:1]:
        raise ValueError(f"targets {tuple(targets.shape)} do not fit {sizes[0]} rows of logits")


def _check_parameters(kind: str, columns: int, *parameters: Tensor | None) -> None:
    for parameter in parameters:
        if parameter is not None and parameter.shape != (columns,):
            raise ValueError(f"{kind}: a parameter {tuple(parameter.shape)} for {columns}")


def _rows_of(x: Tensor) -> tuple[str, tuple[int, int]]:
    """Name of the dtype; number of rows and columns."""
    if x.dtype not in DTYPES:
        raise TypeError(f"no CUDA kernel of rows takes {x.dtype}")
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"{tuple(x.shape)} has no rows with elements")
    columns = x.shape[-1]
    return str(x.dtype).removeprefix("torch."), (x.numel() // columns, columns)
