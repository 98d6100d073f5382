"""Rows of the families contract, reduce and normalize for torch."""

from __future__ import annotations

import torch
from torch import Tensor

from gt.worker.backend import Kernel
from gt.worker.pytorch import own_kernels

_aten = torch.ops.aten
Dims = tuple[int, ...] | None
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


def _median(self: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    # PyTorch's kernel reads beside an operand that is expanded along `dim`.
    return self.contiguous().median(dim, keepdim)


def _nanmedian(self: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    return self.contiguous().nanmedian(dim, keepdim)


def _amax(self: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return self.amax(dim or (), keepdim)


def _amin(self: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return self.amin(dim or (), keepdim)


def _var(self: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    if results := own_kernels.run("var", self, dim, correction, keepdim):
        return results[0]
    if self.numel() == 0:
        out = self.sum(dim, keepdim=keepdim)
        if out.numel() == 0:  # a worker's empty shard, for which torch would warn
            return out
    return self.var(dim, correction=correction, keepdim=keepdim)


def _std(self: Tensor, dim: Dims, correction: float, keepdim: bool) -> Tensor:
    if results := own_kernels.run("std", self, dim, correction, keepdim):
        return results[0]
    if self.numel() == 0:
        return _var(self, dim, correction, keepdim)  # of nothing, or not a number
    return self.std(dim, correction=correction, keepdim=keepdim)


def _cumsum(self: Tensor, dim: int, dtype: torch.dtype | None) -> Tensor:
    return self.cumsum(dim, dtype=dtype)


def _nansum(self: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    return self.nansum(dim, keepdim, dtype=dtype)


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
    # The kernel makes gradients only for given weights and biases; ones change nothing.
    weight = torch.ones(size, dtype=input.dtype, device=input.device) if weight is None else weight
    mask = [True, True, True]
    # The kernel assumes contiguous statistics; a shard of them may be strided.
    mean, rstd = mean.contiguous(), rstd.contiguous()
    return _aten.native_layer_norm_backward.default(
        grad, input, size, mean, rstd, weight, weight, mask
    )


def _rms_norm(
    input: Tensor, weight: Tensor | None, size: tuple[int, ...], eps: float
) -> tuple[Tensor, Tensor]:
    if results := own_kernels.run("rms_norm", input, weight, size, eps):
        return results[0], results[1]
    return torch._fused_rms_norm(input, size, weight, eps)  # noqa: SLF001


def _rms_norm_backward(
    grad: Tensor, input: Tensor, rstd: Tensor, weight: Tensor | None, size: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    if results := own_kernels.run("rms_norm_backward", grad, input, rstd, weight, size):
        return results[0], results[1]
    if input.is_cuda:
        # A weight of ones, as for layer_norm: the kernel has a weight's gradient only with a
        # weight.
        weight = (
            torch.ones(size, dtype=input.dtype, device=input.device) if weight is None else weight
        )
        return _aten._fused_rms_norm_backward.default(  # noqa: SLF001
            grad, input, size, rstd.contiguous(), weight, [True, True]
        )
    # PyTorch has no kernel for the CPU. Half precision is computed in float32.
    dims = tuple(range(-len(size), 0))
    wide = grad.to(rstd.dtype)
    normal = input * rstd
    inner = wide if weight is None else wide * weight
    slope = (inner - normal * (inner * normal).mean(dims, keepdim=True)) * rstd
    rows = tuple(range(input.dim() - len(size)))
    of_weight = (wide * normal).sum(rows) if rows else wide * normal
    return slope.to(input.dtype), of_weight.to(input.dtype)


def _batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if not input.numel():  # no kernel takes an empty input
        mean, rstd, var = (input.new_zeros(input.shape[1]) for _ in range(3))
        return input.clone(), mean, rstd, var
    if results := own_kernels.run("batch_norm", input, weight, bias, eps):
        out, mean, rstd, var = results
        return out, mean, rstd, var
    # Running statistics of zero with momentum 1 become those of this batch.
    running, var = (input.new_zeros(input.shape[1]) for _ in range(2))
    out, mean, rstd = torch.native_batch_norm(input, weight, bias, running, var, True, 1.0, eps)
    return out, mean, rstd, var


def _batch_norm_backward(
    grad: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    if not input.numel():
        none = torch.zeros_like(mean)
        return grad.clone(), none, none.clone()
    if results := own_kernels.run("batch_norm_backward", grad, input, mean, rstd, weight):
        return results[0], results[1], results[2]
    mask = [True, True, True]
    return _aten.native_batch_norm_backward.default(
        grad, input, weight, None, None, mean.contiguous(), rstd.contiguous(), True, 0.0, mask
    )


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
        "std": _std,
        "logsumexp": Tensor.logsumexp,
        "cumsum": _cumsum,
        "nansum": _nansum,
        "softmax": _softmax,
        "log_softmax": _log_softmax,
        "softmax_backward": _softmax_backward,
        "log_softmax_backward": _log_softmax_backward,
        "layer_norm": _layer_norm,
        "layer_norm_backward": _layer_norm_backward,
        "rms_norm": _rms_norm,
        "rms_norm_backward": _rms_norm_backward,
        "batch_norm": _batch_norm,
        "batch_norm_backward": _batch_norm_backward,
        "cummax": Tensor.cummax,
        "cummin": Tensor.cummin,
        "logcumsumexp": Tensor.logcumsumexp,
        "mode": Tensor.mode,
        "median_dim": _median,
        "nanmedian_dim": _nanmedian,
    }
