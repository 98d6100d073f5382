"""Adadelta: gradients divided by the root of their running square, times that of the updates."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.optim.entries import next_step
from gt.optim.factors import add_scaled, factor
from gt.optim.optimizer import (
    Group,
    Params,
    PerParameter,
    check_at_least_zero,
    check_rate,
)


class Adadelta(PerParameter):
    """Adadelta, in PyTorch's numerics.

    Args:
        params: Parameters or groups.
        lr: Factor of the update.
        rho: Fraction of the running squares that each step keeps.
        eps: Added to both running squares under their roots.
        weight_decay: lambda of the L2 penalty that the gradient gains.
        foreach: Accepted and ignored, as are `capturable` and `differentiable`.
        maximize: Whether to maximize instead of minimize.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_at_least_zero(eps=eps, weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update_one(self, group: Group, param: Tensor, grad: Tensor) -> None:
        state, keep, eps = self.state[param], group["rho"], group["eps"]
        if not state:
            state["step"] = 0
            state["square_avg"] = gt.zeros_like(param)
            state["acc_delta"] = gt.zeros_like(param)
        next_step(state)
        if group["weight_decay"]:
            grad = grad.add(param, alpha=group["weight_decay"])
        square = state["square_avg"].mul_(keep).addcmul_(grad, grad, value=1 - keep)
        delta = state["acc_delta"].add(eps).sqrt() / square.add(eps).sqrt() * grad
        state["acc_delta"].mul_(keep).addcmul_(delta, delta, value=1 - keep)
        add_scaled(param, delta, -factor(group, "lr"))
