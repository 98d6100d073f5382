"""SparseAdam: Adam of the rows that have a gradient."""

from __future__ import annotations

import math
from collections.abc import Callable

import gt
from gt._core import Tensor
from gt.optim.entries import next_step
from gt.optim.factors import factor
from gt.optim.optimizer import Group, Params, PerParameter, check_betas


class SparseAdam(PerParameter):
    """Adam that leaves alone parameters and averages of rows without a gradient, as of embeddings.

    GT's gradients are dense, also those of `Embedding(sparse=True)`: a row is without one if all of
    its gradient is zero. PyTorch's has one if it was looked up.

    Args:
        params: Parameters or groups.
        lr: Learning rate.
        betas: Fractions of the running means of gradients and of their squares that a step keeps.
        eps: Added to the root of the squares.
        maximize: Whether to maximize instead of minimize.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if not lr > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        defaults = {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize}
        super().__init__(params, defaults)
        _check(self.param_groups, "Sparse", "requires dense parameter tensors", _is_sparse)
        wanted = "does not support complex parameters"
        _check(self.param_groups, "Complex", wanted, Tensor.is_complex)

    def _update_one(self, group: Group, param: Tensor, grad: Tensor) -> None:
        state, (beta1, beta2) = self.state[param], group["betas"]
        if not state:
            state["step"] = 0
            state["exp_avg"] = gt.zeros_like(param)
            state["exp_avg_sq"] = gt.zeros_like(param)
        step = next_step(state)
        is_given = grad != 0
        if param.ndim > 1:
            is_given = is_given.flatten(1).any(1).reshape(-1, *[1] * (param.ndim - 1))  # a row
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.copy_(gt.where(is_given, mean + (grad - mean) * (1 - beta1), mean))
        square.copy_(gt.where(is_given, square + (grad * grad - square) * (1 - beta2), square))
        rate = factor(group, "lr") * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        change = mean / (square.sqrt() + group["eps"]) * -rate
        param.copy_(gt.where(is_given, param + change, param))


def _check(groups: list[Group], kind: str, wanted: str, is_one: Callable[[Tensor], bool]) -> None:
    """Refuses parameters of a kind, by their places.

    Raises:
        ValueError: there are some.
    """
    places = [
        [index, place]
        for index, group in enumerate(groups)
        for place, param in enumerate(group["params"])
        if is_one(param)
    ]
    if places:
        raise ValueError(f"{kind} params at indices {places}: SparseAdam {wanted}")


def _is_sparse(param: Tensor) -> bool:
    return param.is_sparse
