"""Optimizer steps for torch: its own fused kernels, over the operands' buffers where it may."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from gt.worker.backend import InPlace, Kernel

# Models have a few dozen shapes of parameters; what falls out is only made again.
_SHAPES_MAX = 256


def _nothing(param: Tensor) -> Tensor:
    """Stands for a state that this step does not have: the parameter's shape over one zero."""
    if param.numel() > 1:
        return _zero_over(param.shape, param.dtype, param.device)
    return torch.zeros_like(param)  # no element overlaps another, so it could be written over


@functools.lru_cache(maxsize=_SHAPES_MAX)
def _zero_over(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.zeros((), dtype=dtype, device=device).expand(shape)


@functools.lru_cache(maxsize=2)
def _count(step: int, device: torch.device) -> Tensor:
    """The step as a fused kernel wants it, one for all parameters; kernels only read it."""
    return torch.full((), float(step), device=device)


def _sgd_over(
    param: Tensor,
    grad: Tensor,
    buffer: Tensor | None,
    lr: float,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
    maximize: bool,
    first_step: bool,
) -> tuple[Tensor, Tensor]:
    if momentum == 0 and weight_decay == 0:
        # What torch.optim.SGD does, to the last bit in half precision too, in half the time.
        param.add_(grad, alpha=lr if maximize else -lr)
        return param, _nothing(param) if buffer is None else buffer
    param, grad = param.contiguous(), grad.contiguous()  # fused kernels take no heed of strides
    has_buffer = momentum != 0
    if has_buffer and buffer is None:
        buffer, first_step = torch.zeros_like(param), True
    elif buffer is not None:
        buffer = buffer.contiguous()
    torch._fused_sgd_(
        [param],
        [grad],
        [buffer] if has_buffer and buffer is not None else [],
        weight_decay=weight_decay,
        momentum=momentum,
        lr=lr,
        dampening=dampening,
        nesterov=nesterov,
        maximize=maximize,
        is_first_step=first_step,
    )
    return param, _nothing(param) if buffer is None else buffer


def _sgd_over_param(
    param: Tensor, grad: Tensor, buffer: Tensor | None, *attrs: object
) -> tuple[Tensor, Tensor]:
    return _sgd_over(param, grad, _clone(buffer), *attrs)  # type: ignore[arg-type]


def _sgd(
    param: Tensor, grad: Tensor, buffer: Tensor | None, *attrs: object
) -> tuple[Tensor, Tensor]:
    return _sgd_over(param.clone(), grad, _clone(buffer), *attrs)  # type: ignore[arg-type]


def _adamw_over(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    max_exp_avg_sq: Tensor | None,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
    decoupled: bool,
    maximize: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    # fused kernels take no heed of strides
    param, grad = param.contiguous(), grad.contiguous()
    exp_avg, exp_avg_sq = exp_avg.contiguous(), exp_avg_sq.contiguous()
    if max_exp_avg_sq is not None:
        max_exp_avg_sq = max_exp_avg_sq.contiguous()
    update = torch._fused_adamw_ if decoupled else torch._fused_adam_
    update(
        [param],
        [grad],
        [exp_avg],
        [exp_avg_sq],
        [] if max_exp_avg_sq is None else [max_exp_avg_sq],
        [_count(step, param.device)],
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=max_exp_avg_sq is not None,
        maximize=maximize,
    )
    largest = _nothing(param) if max_exp_avg_sq is None else max_exp_avg_sq
    return param, exp_avg, exp_avg_sq, largest


def _adamw_over_required(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    max_exp_avg_sq: Tensor | None,
    *attrs: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    state = (exp_avg, exp_avg_sq, _clone(max_exp_avg_sq))
    return _adamw_over(param, grad, *state, *attrs)  # type: ignore[arg-type]


def _adamw(
    param: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    max_exp_avg_sq: Tensor | None,
    *attrs: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    state = (exp_avg.clone(), exp_avg_sq.clone(), _clone(max_exp_avg_sq))
    return _adamw_over(param.clone(), grad, *state, *attrs)  # type: ignore[arg-type]


def _clone(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.clone()


def kernels() -> dict[str, Kernel]:
    """Kernels by row."""
    return {"sgd": _sgd, "adamw": _adamw}


def in_place() -> dict[str, list[InPlace]]:
    """Kernels that write over the parameter and its state: with the optional state, and without."""
    return {
        "sgd": [(0b101, _sgd_over, False), (0b001, _sgd_over_param, False)],
        "adamw": [(0b11101, _adamw_over, False), (0b01101, _adamw_over_required, False)],
    }
