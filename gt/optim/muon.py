"""Muon: momentum of matrices, orthogonalized before each step."""

from __future__ import annotations

import math

import gt
from gt._core import Tensor
from gt.optim.optimizer import Group, Params, PerParameter, check_rate

RATIOS = ("original", "match_rms_adamw", "spectral_unclamped")
ITERATIONS_MAX = 99  # PyTorch's


class Muon(PerParameter):
    """Muon, in PyTorch's numerics: its iteration is computed in bfloat16. For matrices only.

    Args:
        params: Parameters or groups, each [m, n].
        lr: Learning rate.
        weight_decay: Decay of the parameter itself.
        momentum: Fraction of the running mean that each step keeps.
        nesterov: Whether to look ahead along the momentum.
        ns_coefficients: Coefficients of the polynomial of degree five in each iteration.
        eps: Lower bound of the norm by which the running mean is divided.
        ns_steps: Number of iterations.
        adjust_lr_fn: Dependence of the rate on the matrix's size: `original` (None),
            `match_rms_adamw` or `spectral_unclamped`.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_rate(lr, "Learning rate should be >= 0 but is")
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn is not None and adjust_lr_fn not in RATIOS:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for param in (param for group in self.param_groups for param in group["params"]):
            if param.ndim != 2:
                raise ValueError(
                    "Muon only supports 2D parameters whereas we found a parameter with size: "
                    f"torch.Size({list(param.shape)})"
                )

    def _update_one(self, group: Group, param: Tensor, grad: Tensor) -> None:
        state, lr, momentum = self.state[param], float(group["lr"]), group["momentum"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = gt.zeros_like(grad)
        mean = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        update = grad.lerp(mean, momentum) if group["nesterov"] else mean
        update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        param.mul_(1 - lr * group["weight_decay"])
        # bfloat16 is widened first: PyTorch's add rounds only the result.
        rate = lr * _ratio(group["adjust_lr_fn"], param)
        param.add_(update.to(param.dtype), alpha=-rate)


def _orthogonal(
    matrix: Tensor, coefficients: tuple[float, float, float], iterations: int, eps: float
) -> Tensor:
    """Approximately U V^T for a matrix U S V^T, by the Newton-Schulz iteration in bfloat16."""
    if iterations > ITERATIONS_MAX:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.to(gt.bfloat16)
    x = x.T if tall else x  # [m, n], m <= n
    x = x / x.norm().clamp(min=eps)
    for _ in range(iterations):
        gram = x @ x.T  # [m, m]
        x = gt.addmm(x, gt.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _ratio(name: str | None, param: Tensor) -> float:
    rows, columns = param.shape
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    ratio = rows / columns
    return math.sqrt(ratio if name == "spectral_unclamped" else max(1, ratio))
