"""SGD: one fused instruction per parameter."""

from __future__ import annotations

from gt import _core
from gt._core import Tensor
from gt.optim.factors import add_scaled, decayed, factor
from gt.optim.optimizer import (
    Group,
    Optimizer,
    Params,
    check_at_least_zero,
    check_fused,
    check_rate,
)


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, in PyTorch's numerics.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        momentum: Factor of the running gradient that replaces the gradient; 0 is none.
        dampening: Fraction of the new gradient that the running one omits.
        weight_decay: lambda of the L2 penalty that the gradient gains.
        nesterov: Whether to look ahead along the momentum.
        maximize: Whether to maximize instead of minimize.
        foreach: Accepted and ignored, as are `differentiable` and `fused`.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_rate(lr)
        check_at_least_zero(momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        check_fused(fused=fused, foreach=foreach, differentiable=differentiable)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _update(self, group: Group, params: list[Tensor], grads: list[Tensor]) -> None:
        if group["differentiable"]:
            for param, grad in zip(params, grads, strict=True):
                self._record(group, param, -grad if group["maximize"] else grad)
            return
        momentum = float(group["momentum"])
        states = [self.state[param] for param in params] if momentum else []
        buffers = _core.sgd_step(
            params,
            grads,
            [state.get("momentum_buffer") for state in states] or [None] * len(params),
            lr=float(group["lr"]),
            momentum=momentum,
            dampening=float(group["dampening"]),
            weight_decay=float(group["weight_decay"]),
            nesterov=bool(group["nesterov"]),
            maximize=bool(group["maximize"]),
        )
        for state, buffer in zip(states, buffers, strict=False):
            state["momentum_buffer"] = buffer

    def _record(self, group: Group, param: Tensor, grad: Tensor) -> None:
        """The update of one parameter by plain operators, which autograd follows."""
        grad = decayed(grad, param, factor(group, "weight_decay"))
        momentum = float(group["momentum"])
        if momentum:
            state = self.state[param]
            if state.get("momentum_buffer") is None:
                state["momentum_buffer"] = grad.detach().clone()
            else:
                mean = state["momentum_buffer"].mul_(momentum)
                mean.add_(grad, alpha=1 - float(group["dampening"]))
            mean = state["momentum_buffer"]
            grad = grad.add(mean, alpha=momentum) if group["nesterov"] else mean
        add_scaled(param, grad, -factor(group, "lr"))
