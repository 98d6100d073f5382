"""Adam and AdamW: one fused instruction per parameter."""

from __future__ import annotations

from typing import Any

import gt
from gt import _core
from gt._core import Tensor
from gt.optim.entries import Entries, next_step, next_steps, tensors
from gt.optim.factors import Factor, add_quotient, decayed, factor, keep_squares, kept
from gt.optim.optimizer import (
    Group,
    Optimizer,
    Params,
    check_at_least_zero,
    check_betas,
    check_fused,
    check_rate,
)


class Adam(Optimizer):
    """Adam, in PyTorch's numerics.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        betas: Fractions of the running mean and of the running square that each step keeps.
        eps: Added to the root of the running square.
        weight_decay: lambda of the L2 penalty (AdamW: of the decay of the parameter itself).
        amsgrad: Divide by the largest running square so far.
        foreach: Accepted and ignored, as are `capturable`, `differentiable` and `fused`.
        maximize: Whether to maximize instead of minimize.
        decoupled_weight_decay: Whether to decay the parameter itself, which makes this AdamW.
    """

    _entries = Entries

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[Factor, Factor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: Factor = 0,
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
        if not any(all(isinstance(beta, kind) for beta in betas) for kind in (float, Tensor)):
            raise ValueError("betas must be either both floats or both Tensors")
        check_fused(fused=fused, foreach=foreach, differentiable=differentiable)
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
        if group["differentiable"]:
            for param, grad in zip(params, grads, strict=True):
                self._record(group, param, -grad if group["maximize"] else grad)
            return
        amsgrad = bool(group["amsgrad"])
        states = self._states_of(params, amsgrad=amsgrad)
        beta1, beta2 = group["betas"]
        _core.adamw_step(
            params,
            grads,
            tensors(states, "exp_avg"),
            tensors(states, "exp_avg_sq"),
            tensors(states, "max_exp_avg_sq") if amsgrad else None,
            next_steps(states),
            lr=float(group["lr"]),
            beta1=float(beta1),
            beta2=float(beta2),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            decoupled=bool(group["decoupled_weight_decay"]),
            maximize=bool(group["maximize"]),
        )

    def _record(self, group: Group, param: Tensor, grad: Tensor) -> None:
        """The update of one parameter by plain operators, which autograd follows."""
        (state,) = self._states_of([param], amsgrad=bool(group["amsgrad"]))
        step = next_step(state)
        lr, decay = factor(group, "lr"), factor(group, "weight_decay")
        beta1, beta2 = (
            beta if isinstance(beta, Tensor) and beta.requires_grad else float(beta)
            for beta in group["betas"]
        )
        if group["decoupled_weight_decay"]:
            param.mul_(1 - lr * decay)
        else:
            grad = decayed(grad, param, decay)
        mean, square = state["exp_avg"].lerp_(grad, 1 - beta1), state["exp_avg_sq"]
        keep_squares(square, grad, beta2)
        if group["amsgrad"]:
            largest = state["max_exp_avg_sq"]
            square = largest.copy_(gt.maximum(kept(largest), kept(square)))
        root = square.sqrt() / (1 - beta2**step) ** 0.5 + group["eps"]
        add_quotient(param, mean, root, -lr / (1 - beta1**step))

    def _states_of(self, params: list[Tensor], *, amsgrad: bool) -> list[dict[str, Any]]:
        held = self.state
        states = [held[param] or self._begin(param) for param in params]
        if amsgrad:
            for param, state in zip(params, states, strict=True):
                if "max_exp_avg_sq" not in state:
                    state["max_exp_avg_sq"] = gt.zeros_like(param)
        return states

    def _begin(self, param: Tensor) -> dict[str, Any]:
        state = self.state[param]
        state["step"] = 0
        state["exp_avg"] = gt.zeros_like(param)
        state["exp_avg_sq"] = gt.zeros_like(param)
        return state


class AdamW(Adam):
    """Adam whose weight decay acts on the parameter itself; arguments as Adam's."""

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[Factor, Factor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: Factor = 1e-2,
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
