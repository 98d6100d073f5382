"""Optimizer steps for torch, by its fused kernels: in place where allowed, for one or a list."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gt.worker.backend import InPlace, Kernel
from gt.worker.pytorch import own_kernels
from gt.worker.update_values import Operands, contiguous, nothing, required, written

if TYPE_CHECKING:
    from gt.worker.cuda.operators import CudaOperators

_Results = tuple[Tensor, ...]
_Numbers = Sequence[Any]
_Step = Callable[[list[Operands], _Numbers, int], list[_Results]]


@functools.lru_cache(maxsize=2)
def _count(step: int, device: torch.device) -> Tensor:
    """The step count as a tensor for a fused kernel, one for all parameters; kernels
    only read it.
    """
    return torch.full((), float(step), device=device)


def _sgd_step(members: list[Operands], numbers: _Numbers, owned: int) -> list[_Results]:
    """SGD steps with equal attributes; bit k of `owned` allows writing over operands k."""
    lr, momentum, dampening, weight_decay, nesterov, maximize, first_step = numbers
    params, grads = written(members, 0, owned), [required(one[1]) for one in members]
    has_buffers = members[0][2] is not None
    buffers = written(members, 2, owned) if has_buffers else []
    if momentum == 0 and weight_decay == 0:
        # The update of torch.optim.SGD to the last bit, in half precision too, in half the time.
        for param, grad in zip(params, grads, strict=True):
            param.add_(grad, alpha=lr if maximize else -lr)
        return _with_states(params, buffers)
    # Fused kernels ignore strides.
    params, buffers = contiguous(params), contiguous(buffers)
    if momentum != 0 and not has_buffers:
        buffers, first_step = [torch.zeros_like(param) for param in params], True
    torch._fused_sgd_(
        params,
        contiguous(grads),
        buffers if momentum != 0 else [],
        weight_decay=weight_decay,
        momentum=momentum,
        lr=lr,
        dampening=dampening,
        nesterov=nesterov,
        maximize=maximize,
        is_first_step=first_step,
    )
    return _with_states(params, buffers)


def _adamw_step(members: list[Operands], numbers: _Numbers, owned: int) -> list[_Results]:
    lr, beta1, beta2, eps, weight_decay, step, decoupled, maximize = numbers
    amsgrad = members[0][4] is not None
    params, first, second = (contiguous(written(members, place, owned)) for place in (0, 2, 3))
    largest = contiguous(written(members, 4, owned)) if amsgrad else []
    grads = contiguous([required(one[1]) for one in members])
    if len(members) == 1 and not amsgrad:
        operands = (params[0], grads[0], first[0], second[0])
        rates = (lr, beta1, beta2, eps, weight_decay, step, decoupled, maximize)
        if own_kernels.run("adam", *operands, *rates) is not None:
            return [(*operands[:1], *operands[2:], nothing(params[0]))]
    update = torch._fused_adamw_ if decoupled else torch._fused_adam_
    update(
        params,
        grads,
        first,
        second,
        largest,
        [_count(int(step), params[0].device)] * len(members),
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=amsgrad,
        maximize=bool(maximize),
    )
    largest = largest or [nothing(param) for param in params]
    return list(zip(params, first, second, largest, strict=True))


def _with_states(params: list[Tensor], states: list[Tensor]) -> list[_Results]:
    return list(zip(params, states or [nothing(param) for param in params], strict=True))


# The function of each row for a list of steps, and the number of the row's operands.
_STEPS: dict[str, tuple[_Step, int]] = {"sgd": (_sgd_step, 3), "adamw": (_adamw_step, 5)}
# Bits of the operands that each row overwrites: with the optional state, and without it.
_OVER = {"sgd": (0b101, 0b001), "adamw": (0b11101, 0b01101)}


class Updates:
    """Kernels of one device, by row.

    Args:
        own: The device's operators of GT's own, if it has any.
    """

    def __init__(self, own: CudaOperators | None = None) -> None:
        self._steps = {
            row: step if own is None else own.over(row, step) for row, (step, _) in _STEPS.items()
        }

    def _single(self, row: str, owned: int) -> Kernel:
        step, (_, operands) = self._steps[row], _STEPS[row]
        return lambda *given: step([given[:operands]], given[operands:], owned)[0]

    def _grouped(self, row: str, owned: int) -> Kernel:
        step = self._steps[row]
        return lambda members, *numbers: step(members, numbers, owned)

    def kernels(self) -> dict[str, Kernel]:
        """Kernels for one step."""
        return {row: self._single(row, 0) for row in _STEPS}

    def in_place(self) -> dict[str, list[InPlace]]:
        """Kernels that write over the parameter and its state."""
        return {
            row: [(over, self._single(row, over), False) for over in _OVER[row]] for row in _STEPS
        }

    def grouped(self) -> dict[str, dict[int, Kernel]]:
        """Kernels for lists of steps with equal attributes, by the operands that they
        write over.
        """
        return {row: {over: self._grouped(row, over) for over in _OVER[row]} for row in _STEPS}
