"""Adafactor: running squares of matrices, stored as a row and a column."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.optim.entries import next_step
from gt.optim.optimizer import (
    Group,
    Params,
    PerParameter,
    check_rate,
)


class Adafactor(PerParameter):
    """Adafactor, in PyTorch's numerics; the norms that it needs stay on the workers.

    Args:
        params: Parameters or groups.
        lr: Upper bound of the relative step size.
        beta2_decay: Exponent of the step's number in the weight of the newest square.
        eps: Least running square (None: the dtype's epsilon) and least norm of a parameter.
        d: Largest root mean square of an update.
        weight_decay: Decay of the parameter itself.
        foreach: Accepted and ignored.
        maximize: Whether to maximize instead of minimize.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_rate(lr, "Learning rate should be >= 0 but is")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def _update_one(self, group: Group, param: Tensor, grad: Tensor) -> None:
        state, lr, (least, least_norm) = self.state[param], float(group["lr"]), group["eps"]
        if least is None:
            least = gt.finfo(param.dtype).eps
        if not state:
            state["step"] = 0
            if grad.dim() > 1:
                state["row_var"] = gt.zeros_like(grad[..., :1])
                state["col_var"] = gt.zeros_like(grad[..., :1, :])
            else:
                state["variance"] = gt.zeros_like(grad)
        step, entries = next_step(state), param.numel()
        rate = param.norm(2).div(entries**0.5).clamp(min=least_norm) * min(lr, step**-0.5)
        if group["weight_decay"]:
            param.mul_(1 - lr * group["weight_decay"])
        square = self._square(state, grad, step ** group["beta2_decay"], least)
        update = square.clamp(min=least * least).rsqrt().mul_(grad)
        excess = update.norm(2).div(entries**0.5 * group["d"]).clamp(min=1.0)
        param.sub_(update.mul_(rate / excess))

    @staticmethod
    def _square(state: dict[str, Tensor], grad: Tensor, weight: float, least: float) -> Tensor:
        """The running square including this gradient; that of a matrix has rank one."""
        square = grad * grad
        if grad.dim() <= 1:
            return state["variance"].lerp_(square, weight)
        row = state["row_var"].lerp_(square.mean(-1, keepdim=True), weight)
        column = state["col_var"].lerp_(square.mean(-2, keepdim=True), weight)
        return row @ column / row.mean(-2, keepdim=True).clamp(min=least)
