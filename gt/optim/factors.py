"""Factors of an update: numbers, or tensors where a step is recorded."""

from __future__ import annotations

from typing import Any

import gt
from gt._core import Tensor

Factor = float | Tensor


def factor(group: dict[str, Any], option: str) -> Factor:
    """An option as a number; unchanged if a differentiable step has a gradient for it."""
    value = group[option]
    if isinstance(value, Tensor) and group["differentiable"] and value.requires_grad:
        return value.reshape(())
    return float(value)


def kept(x: Tensor) -> Tensor:
    """A copy of a tensor that a later step overwrites, if a gradient may read it."""
    return x.clone() if gt.is_grad_enabled() else x


def decayed(grad: Tensor, param: Tensor, decay: Factor) -> Tensor:
    """grad + decay * param: the gradient with an L2 penalty."""
    if isinstance(decay, Tensor):
        return grad.addcmul(kept(param), decay)
    return grad.add(param, alpha=decay) if decay else grad


def add_scaled(param: Tensor, direction: Tensor, by: Factor) -> None:
    """param += by * direction."""
    if isinstance(by, Tensor):
        param.addcmul_(kept(direction), by)
    else:
        param.add_(direction, alpha=by)


def add_quotient(param: Tensor, top: Tensor, bottom: Tensor, by: Factor) -> None:
    """param += by * top / bottom."""
    top, bottom = kept(top), kept(bottom)
    if isinstance(by, Tensor):
        param.addcdiv_(top * by, bottom)
    else:
        param.addcdiv_(top, bottom, value=by)


def keep_squares(square: Tensor, grad: Tensor, keep: Factor) -> None:
    """square = keep * square + (1 - keep) * grad * grad."""
    if isinstance(keep, Tensor):
        square.lerp_(grad.square(), 1 - keep)
    else:
        square.mul_(keep).addcmul_(grad, grad, value=1 - keep)
