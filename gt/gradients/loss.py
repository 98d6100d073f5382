"""Gradients of the losses: one instruction, or differentiable operators under create_graph."""

import math

from gt import _core
from gt._core import Tensor, call
from gt.gradients.rules import Saved, gradient, refused, zeros

gradient("nll_loss", self=lambda g, s: nll_self(g[0], s), target=None, weight=None)
gradient(
    "mse_loss",
    self=lambda g, s: mse_self(g, s, s.self, s.target),
    target=lambda g, s: mse_self(g, s, s.target, s.self),
)
gradient(
    "nll_loss_backward",
    grad=refused("nll_loss_backward"),
    self=refused("nll_loss_backward"),
    target=None,
    weight=None,
    total_weight=None,
)
gradient(
    "mse_loss_backward", **dict.fromkeys(("grad", "self", "target"), refused("mse_loss_backward"))
)


def nll_self(g: Tensor, s: Saved) -> Tensor:
    """The operator wants `self` for its shape only: a number expanded to it stands in."""
    if _core.is_grad_enabled():
        return nll_scattered(g, s)
    shape = s.shape_of("self")
    shaped = call("full_like", g, size=(), value=0, dtype=s.dtype_of("self")).expand(shape)
    reduction = {"reduction": s.reduction, "ignore_index": s.ignore_index}
    return call("nll_loss_backward", g, shaped, s.target, s.weight, s.out1, **reduction)


def nll_scattered(g: Tensor, s: Saved) -> Tensor:
    """Minus the class weight at each target, zero at ignored ones."""
    dim = 0 if len(s.shape_of("self")) == 1 else 1
    ignored = s.target == s.ignore_index
    index = s.target.masked_fill(ignored, 0)
    weight = 1.0 if s.weight is None else call("index", s.weight, index)
    g = g / s.out1.detach() if s.reduction == "mean" else g
    factor = call("where", ignored, 0.0, -(g * weight))
    shape = (*s.target.shape[:dim], 1, *s.target.shape[dim:])
    factor = factor.expand(s.target.shape).reshape(shape)
    return call("scatter", zeros(g, s, "self"), index.reshape(shape), factor, dim=dim)


def mse_self(g: Tensor, s: Saved, this: Tensor, other: Tensor) -> Tensor:
    if not _core.is_grad_enabled():
        return call("mse_loss_backward", g, this, other, reduction=s.reduction)
    count = math.prod(this.shape) if s.reduction == "mean" else 1
    return g * (this - other) * (2 / max(count, 1))
