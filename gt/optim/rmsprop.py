"""RMSprop: gradients divided by the root of their running square."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.optim.entries import next_step
from gt.optim.factors import add_quotient, add_scaled, factor, kept
from gt.optim.optimizer import (
    Group,
    Params,
    PerParameter,
    check_at_least_zero,
    check_rate,
)


class RMSprop(PerParameter):
    """RMSprop, in PyTorch's numerics.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        alpha: Fraction of the running square that each step keeps.
        eps: Added to the root of the running square.
        weight_decay: lambda of the L2 penalty that the gradient gains.
        momentum: Factor of the running step that replaces the step; 0 is none.
        centered: Whether to subtract the square of the running mean from the running square.
        maximize: Whether to maximize instead of minimize.
        foreach: Accepted and ignored, as are `capturable` and `differentiable`.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr)
        check_at_least_zero(eps=eps, momentum=momentum, weight_decay=weight_decay)
        if not alpha >= 0.0:
            raise ValueError(f"Invalid alpha value: {alpha}")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _update_one(self, group: Group, param: Tensor, grad: Tensor) -> None:
        lr = factor(group, "lr")
        state, keep, momentum = self.state[param], group["alpha"], group["momentum"]
        if not state:
            state["step"] = 0
            optional = {"momentum_buffer": momentum > 0, "grad_avg": group["centered"]}
            for name in ("square_avg", *(name for name, present in optional.items() if present)):
                state[name] = gt.zeros_like(param)
        next_step(state)
        if group["weight_decay"]:
            grad = grad.add(param, alpha=group["weight_decay"])
        square = state["square_avg"].mul_(keep).addcmul_(grad, grad, value=1 - keep)
        if group["centered"]:
            mean = state["grad_avg"].lerp_(grad, 1 - keep)
            square = square.addcmul(kept(mean), kept(mean), value=-1)
        root = square.sqrt() + group["eps"]
        if momentum > 0:
            add_scaled(param, state["momentum_buffer"].mul_(momentum).addcdiv_(grad, root), -lr)
        else:
            add_quotient(param, grad, root, -lr)
