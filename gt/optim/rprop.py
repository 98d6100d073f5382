"""Rprop: a step size for each entry, by the signs of two successive gradients."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.optim.entries import next_step
from gt.optim.factors import factor, kept
from gt.optim.optimizer import (
    Group,
    Params,
    PerParameter,
    check_rate,
)


class Rprop(PerParameter):
    """Resilient propagation, in PyTorch's numerics.

    Args:
        params: Parameters or groups.
        lr: Initial step size.
        etas: Factors of a step size for a changed sign and for an unchanged one.
        step_sizes: The smallest and the largest step size.
        capturable: Accepted and ignored, as are `foreach` and `differentiable`.
        maximize: Whether to maximize instead of minimize.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _update_one(self, group: Group, param: Tensor, grad: Tensor) -> None:
        state, (shrink, grow) = self.state[param], group["etas"]
        if not state:
            state["step"] = 0
            state["prev"] = gt.zeros_like(param)
            state["step_size"] = gt.ones_like(grad).mul_(factor(group, "lr"))
        next_step(state)
        agreement = grad * kept(state["prev"])
        turned = agreement < 0
        change = gt.where(turned, shrink, gt.ones_like(grad))
        change = gt.where(agreement > 0, grow, change)
        size = state["step_size"].mul_(change).clamp_(*group["step_sizes"])
        grad = gt.where(turned, 0, grad)
        param.addcmul_(grad.sign(), kept(size), value=-1)
        state["prev"].copy_(grad)
