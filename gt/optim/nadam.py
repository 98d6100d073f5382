"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.optim.entries import multiplied, next_step
from gt.optim.factors import add_quotient, factor
from gt.optim.optimizer import (
    Group,
    Params,
    PerParameter,
    check_at_least_zero,
    check_betas,
    check_rate,
)


class NAdam(PerParameter):
    """NAdam, in PyTorch's numerics.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        betas: Fractions of the running mean and of the running square that each step keeps.
        eps: Added to the root of the running square.
        weight_decay: lambda of the L2 penalty.
        momentum_decay: Rate at which the momentum approaches its final value.
        decoupled_weight_decay: Whether to decay the parameter itself, as AdamW does.
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
        momentum_decay: float = 4e-3,
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
        if not momentum_decay >= 0.0:
            raise ValueError(f"Invalid momentum_decay value: {momentum_decay}")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update_one(self, group: Group, param: Tensor, grad: Tensor) -> None:
        state, (beta1, beta2), lr = self.state[param], group["betas"], factor(group, "lr")
        if not state:
            state["step"] = 0
            state["mu_product"] = 1.0
            state["exp_avg"] = gt.zeros_like(param)
            state["exp_avg_sq"] = gt.zeros_like(param)
        step, decay = next_step(state), group["momentum_decay"]
        if group["weight_decay"] and group["decoupled_weight_decay"]:
            param.mul_(1 - lr * group["weight_decay"])
        elif group["weight_decay"]:
            grad = grad.add(param, alpha=group["weight_decay"])
        now, later = (beta1 * (1.0 - 0.5 * 0.96 ** (place * decay)) for place in (step, step + 1))
        product = multiplied(state, "mu_product", now)
        mean = state["exp_avg"].lerp_(grad, 1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = square.div(1 - beta2**step).sqrt() + group["eps"]
        add_quotient(param, grad, root, -lr * (1.0 - now) / (1.0 - product))
        add_quotient(param, mean, root, -lr * later / (1.0 - product * later))
