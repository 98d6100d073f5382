"""Adagrad: gradients divided by the root of the sum of their squares."""

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
    check_fused,
    check_rate,
)


class Adagrad(PerParameter):
    """Adagrad, in PyTorch's numerics.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        lr_decay: The rate of step n is lr / (1 + (n - 1) * lr_decay).
        weight_decay: lambda of the L2 penalty that the gradient gains.
        initial_accumulator_value: Initial value of the sums of squares.
        eps: Added to their roots.
        foreach: Accepted and ignored, as are `differentiable` and `fused`.
        maximize: Whether to maximize instead of minimize.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_rate(lr)
        if not lr_decay >= 0.0:
            raise ValueError(f"Invalid lr_decay value: {lr_decay}")
        check_at_least_zero(weight_decay=weight_decay)
        if not initial_accumulator_value >= 0.0:
            raise ValueError(
                f"Invalid initial_accumulator_value value: {initial_accumulator_value}"
            )
        check_at_least_zero(eps=eps)
        check_fused(fused=fused, foreach=foreach, differentiable=differentiable)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for param in group["params"]:
                self._begin(group, param)

    def _update_one(self, group: Group, param: Tensor, grad: Tensor) -> None:
        state = self.state[param]
        if not state:  # the group was added later
            self._begin(group, param)
        step = next_step(state)
        if group["weight_decay"]:
            grad = grad.add(param, alpha=group["weight_decay"])
        rate = factor(group, "lr") / (1 + (step - 1) * group["lr_decay"])
        root = state["sum"].addcmul_(grad, grad).sqrt() + group["eps"]
        add_quotient(param, grad, root, -rate)

    def _begin(self, group: Group, param: Tensor) -> None:
        start = gt.full_like(param, group["initial_accumulator_value"], requires_grad=False)
        self.state[param].update(step=0, sum=start)
