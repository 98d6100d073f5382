"""ASGD: gradient descent that averages the parameters of all steps."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.optim.entries import next_step, number, set_number
from gt.optim.factors import add_scaled, factor
from gt.optim.optimizer import (
    Group,
    Params,
    PerParameter,
    check_at_least_zero,
    check_rate,
)


class ASGD(PerParameter):
    """Averaged SGD, in PyTorch's numerics.

    The average is `state[p]["ax"]`.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        lambd: Fraction of the parameter that each step subtracts, in learning rates.
        alpha: Exponent by which the rate falls.
        t0: Step at which averaging starts.
        weight_decay: lambda of the L2 penalty that the gradient gains.
        foreach: Accepted and ignored, as are `capturable` and `differentiable`.
        maximize: Whether to maximize instead of minimize.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_rate(lr)
        for name, value in (("lambd", lambd), ("alpha", alpha)):
            if not value >= 0.0:
                raise ValueError(f"Invalid {name} value: {value}")
        check_at_least_zero(weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _update_one(self, group: Group, param: Tensor, grad: Tensor) -> None:
        state, lr, decay = self.state[param], factor(group, "lr"), group["lambd"]
        if not state:
            state["step"] = 0
            state["eta"] = lr
            state["mu"] = 1.0
            state["ax"] = gt.zeros_like(param)
        step, eta, mu = next_step(state), number(state, "eta"), number(state, "mu")
        if group["weight_decay"]:
            grad = grad.add(param, alpha=group["weight_decay"])
        add_scaled(param.mul_(1 - decay * eta), grad, -eta)
        mean = state["ax"]
        if mu == 1:
            mean.copy_(param)
        else:
            mean.add_(param.sub(mean), alpha=mu)
        set_number(state, "eta", lr / (1 + decay * lr * step) ** group["alpha"])
        set_number(state, "mu", 1 / max(1, step - group["t0"]))
