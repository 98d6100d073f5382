"""Adamax: Adam whose divisor is a running maximum."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.optim.entries import next_step
from gt.optim.factors import add_quotient, factor
from gt.optim.optimizer import (
    Group,
    Params,
    PerParameter,
    check_at_least_zero,
    check_betas,
    check_rate,
)


class Adamax(PerParameter):
    """Adamax, in PyTorch's numerics.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        betas: Fractions of the running mean and of the running maximum that each step keeps.
        eps: Added to the absolute gradient.
        weight_decay: lambda of the L2 penalty that the gradient gains.
        foreach: Accepted and ignored, as are `capturable` and `differentiable`.
        maximize: Whether to maximize instead of minimize.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_rate(lr)
        check_at_least_zero(eps=eps)
        check_betas(betas)
        check_at_least_zero(weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _update_one(self, group: Group, param: Tensor, grad: Tensor) -> None:
        state, (beta1, beta2) = self.state[param], group["betas"]
        if not state:
            state["step"] = 0
            state["exp_avg"] = gt.zeros_like(param)
            state["exp_inf"] = gt.zeros_like(param)
        step = next_step(state)
        if group["weight_decay"]:
            grad = grad.add(param, alpha=group["weight_decay"])
        mean, largest = state["exp_avg"].lerp_(grad, 1 - beta1), state["exp_inf"]
        largest.copy_(gt.maximum(largest * beta2, grad.abs() + group["eps"]))
        rate = factor(group, "lr") / (1 - beta1**step)
        add_quotient(param, mean, largest, -rate)
