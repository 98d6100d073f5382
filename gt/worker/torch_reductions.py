"""Rows of the families contract, reduce, normalize and loss for torch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gt.worker.backend import Kernel

Dims = tuple[int, ...] | None
_REDUCTION = {"none": 0, "mean": 1, "sum": 2}
_aten = torch.ops.aten
_nn = torch._C._nn  # noqa: SLF001  torch.nn.functional checks arguments again and costs as much as the kernel


def _sum(self: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    return self.sum(dim, keepdim, dtype=dtype)


def _mean(self: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    return self.mean(dim, keepdim, dtype=dtype)


def _prod(self: Tensor, dim: int | None, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    if dim is not None:
        return self.prod(dim, keepdim, dtype=dtype)
    out = self.prod(dtype=dtype)
    return out.reshape((1,) * self.dim()) if keepdim else out


def _amax(self: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return self.amax(dim or (), keepdim)


def _amin(self: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return self.amin(dim or (), keepdim)


def _var(self: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    return self.var(dim, correction=correction, keepdim=keepdim)


def _cumsum(self: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    return self.cumsum(dim, dtype=dtype)


def _softmax(self: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    return self.softmax(dim, dtype=dtype)


def _log_softmax(self: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    return self.log_softmax(dim, dtype=dtype)


def _softmax_backward(grad: Tensor, out: Tensor, dim: int) -> Tensor:
    return torch._softmax_backward_data(grad, out, dim, out.dtype)  # noqa: SLF001


def _log_softmax_backward(grad: Tensor, out: Tensor, dim: int) -> Tensor:
    return torch._log_softmax_backward_data(grad, out, dim, out.dtype)  # noqa: SLF001


def _layer_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, size: tuple[int, ...], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.native_layer_norm(input, size, weight, bias, eps)


def _layer_norm_backward(
    grad: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    size: tuple[int, ...],
) -> tuple[Tensor, Tensor, Tensor]:
    # The kernel makes gradients only for a weight and a bias that are there; ones change nothing.
    weight = torch.ones(size, dtype=input.dtype, device=input.device) if weight is None else weight
    mask = [True, True, True]
    return _aten.native_layer_norm_backward.default(
        grad, input, size, mean, rstd, weight, weight, mask
    )


def _flat(self: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Classes in dimension 1 and all behind it in one, as torch's kernel for images has it."""
    batch, classes, *rest = self.shape
    pixels = math.prod(rest)  # not -1: a piece may be empty
    # [n, c, ...] -> [n, c, 1, d]
    return self.reshape(batch, classes, 1, pixels), target.reshape(batch, 1, pixels)


def _nll_loss(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int
) -> tuple[Tensor, Tensor]:
    code = _REDUCTION[reduction]
    if self.dim() <= 2:
        return _aten.nll_loss_forward.default(self, target, weight, code, ignore_index)
    images, targets = _flat(self, target)
    loss, total = _aten.nll_loss2d_forward.default(images, targets, weight, code, ignore_index)
    return loss.reshape(target.shape) if reduction == "none" else loss, total


def _nll_loss_backward(
    grad: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    total_weight: Tensor,
    reduction: str,
    ignore_index: int,
) -> Tensor:
    code = _REDUCTION[reduction]
    if self.dim() <= 2:
        return _aten.nll_loss_backward.default(
            grad, self, target, weight, code, ignore_index, total_weight
        )
    images, targets = _flat(self, target)
    grad = grad.reshape(targets.shape) if reduction == "none" else grad
    out = _aten.nll_loss2d_backward.default(
        grad, images, targets, weight, code, ignore_index, total_weight
    )
    return out.reshape(self.shape)


def _mse_loss(self: Tensor, target: Tensor, reduction: str) -> Tensor:
    # torch's stub has the argument of torch.nn.functional.
    loss = _nn.mse_loss(self, target, _REDUCTION[reduction])  # type: ignore[arg-type]
    # A sum or mean still lies in the memory of all its terms.
    return loss if reduction == "none" else loss.clone()


def _mse_loss_backward(grad: Tensor, self: Tensor, target: Tensor, reduction: str) -> Tensor:
    return _aten.mse_loss_backward.default(grad, self, target, _REDUCTION[reduction])


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {
        "matmul": Tensor.matmul,
        "linear": _nn.linear,
        "sum": _sum,
        "mean": _mean,
        "prod": _prod,
        "amax": _amax,
        "amin": _amin,
        "argmax": Tensor.argmax,
        "argmin": Tensor.argmin,
        "max_dim": Tensor.max,
        "min_dim": Tensor.min,
        "all": Tensor.all,
        "any": Tensor.any,
        "var": _var,
        "logsumexp": Tensor.logsumexp,
        "cumsum": _cumsum,
        "softmax": _softmax,
        "log_softmax": _log_softmax,
        "softmax_backward": _softmax_backward,
        "log_softmax_backward": _log_softmax_backward,
        "layer_norm": _layer_norm,
        "layer_norm_backward": _layer_norm_backward,
        "nll_loss": _nll_loss,
        "nll_loss_backward": _nll_loss_backward,
        "mse_loss": _mse_loss,
        "mse_loss_backward": _mse_loss_backward,
    }
