"""Adam and AdamW: one fused instruction per parameter."""

from __future__ import annotations

from typing import Any

import gt
from gt import _core
from gt._core import Tensor
from gt.errors import InvalidUse
from gt.optim.optimizer import (
    Group,
    Optimizer,
    Params,
    check_at_least_zero,
    check_betas,
    check_rate,
    refuse_differentiable,
)


class Adam(Optimizer):
    """Adam, in PyTorch's numerics; `state[p]["step"]` is a Python int (PyTorch: a tensor).

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        betas: How much of the running mean and of the running square each step keeps.
        eps: Added to the root of the running square.
        weight_decay: lambda of the L2 penalty (AdamW: of the decay of the parameter itself).
        amsgrad: Divide by the largest running square so far.
        foreach: Accepted and ignored, as are `capturable`, `differentiable` (False) and `fused`.
        maximize: Go up instead of down.
        decoupled_weight_decay: Decay the parameter itself, which makes this AdamW.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_rate(lr)
        check_at_least_zero(eps=eps)
        check_betas(betas)
        check_at_least_zero(weight_decay=weight_decay)
        refuse_differentiable(self, differentiable=differentiable)
        if fused and foreach:
            raise InvalidUse("`fused` and `foreach` cannot be `True` together.")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def _update(self, group: Group, params: list[Tensor], grads: list[Tensor]) -> None:
        amsgrad = bool(group["amsgrad"])
        states = [self._state_of(param, amsgrad=amsgrad) for param in params]
        for state in states:
            state["step"] += 1
        beta1, beta2 = group["betas"]
        _core.adamw_step(
            params,
            grads,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [state["max_exp_avg_sq"] for state in states] if amsgrad else None,
            [state["step"] for state in states],
            lr=float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            decoupled=bool(group["decoupled_weight_decay"]),
            maximize=bool(group["maximize"]),
        )

    def _state_of(self, param: Tensor, *, amsgrad: bool) -> dict[str, Any]:
        state = self.state[param]
        if not state:
            state["step"] = 0
            state["exp_avg"] = gt.zeros_like(param)
            state["exp_avg_sq"] = gt.zeros_like(param)
        if amsgrad and "max_exp_avg_sq" not in state:
            state["max_exp_avg_sq"] = gt.zeros_like(param)
        return state


class AdamW(Adam):
    """Adam whose weight decay acts on the parameter itself; arguments as Adam's."""

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
