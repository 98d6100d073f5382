"""RAdam: Adam without its divisor until the running square has averaged enough steps."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.optim.entries import next_step
from gt.optim.factors import add_quotient, add_scaled, factor
from gt.optim.optimizer import (
    Group,
    Params,
    PerParameter,
    check_at_least_zero,
    check_betas,
    check_rate,
)


class RAdam(PerParameter):
    """RAdam, in PyTorch's numerics.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        betas: Fractions of the running mean and of the running square that each step keeps.
        eps: Added to the root of the running square.
        weight_decay: lambda of the L2 penalty.
        decoupled_weight_decay: Whether to decay the parameter itself, as AdamW does.
        foreach: Accepted and ignored, as are `capturable` and `differentiable`.
        maximize: Whether to maximize instead of minimize.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
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
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update_one(self, group: Group, param: Tensor, grad: Tensor) -> None:
        state, (beta1, beta2), lr = self.state[param], group["betas"], factor(group, "lr")
        if not state:
            state["step"] = 0
            state["exp_avg"] = gt.zeros_like(param)
            state["exp_avg_sq"] = gt.zeros_like(param)
        step = next_step(state)
        if group["weight_decay"] and group["decoupled_weight_decay"]:
            param.mul_(1 - lr * group["weight_decay"])
        elif group["weight_decay"]:
            grad = grad.add(param, alpha=group["weight_decay"])
        mean = state["exp_avg"].lerp_(grad, 1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        unbiased, seen = mean / (1 - beta1**step), 1 - beta2**step
        most = 2 / (1 - beta2) - 1  # length of the average after many steps
        length = most - 2 * step * beta2**step / seen
        if length > 5.0:
            span = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
            root = square.sqrt() + group["eps"]
            add_quotient(param, unbiased, root, -lr * seen**0.5 * span**0.5)
        else:
            add_scaled(param, unbiased, -lr)
