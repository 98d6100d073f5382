"""Gradients of the losses: one instruction, or differentiable operators under create_graph."""

import math

from gt import _core
from gt._core import Tensor, call
from gt.gradients.rules import Saved, gradient, refused, zeros

gradient("nll_loss", self=lambda g, s: nll_self(g[0], s), target=None, weight=None)
gradient("cross_entropy", self=lambda g, s: cross_self(g, s), target=None, weight=None)
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
    "cross_entropy_backward",
    grad=refused("cross_entropy_backward"),
    log_probs=refused("cross_entropy_backward"),
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
        return scattered(g, s, s.out1)
    shape = s.shape_of("self")
    shaped = call("full_like", g, size=(), value=0, dtype=s.dtype_of("self")).expand(shape)
    reduction = {"reduction": s.reduction, "ignore_index": s.ignore_index}
    reduction |= {"start": s.start, "total": s.total}
    return call("nll_loss_backward", g, shaped, s.target, s.weight, s.out1, **reduction)


def cross_self(grads: tuple[Tensor | None, ...], s: Saved) -> Tensor | None:
    """Through the loss, and through log_softmax, the second result, where that is used further."""
    g, along = grads[0], grads[1]
    dim = 0 if len(s.shape_of("self")) == 1 else 1
    if g is not None and not _core.is_grad_enabled():
        rest = {"reduction": s.reduction, "ignore_index": s.ignore_index}
        rest |= {"label_smoothing": s.label_smoothing}
        direct = call("cross_entropy_backward", g, s.out1, s.target, s.weight, s.out2, **rest)
        if along is None:
            return direct
        return direct + call("log_softmax_backward", along, s.out1, dim=dim)
    if g is not None:
        through = cross_scattered(g, s, dim)
        along = through if along is None else along + through
    return None if along is None else call("log_softmax_backward", along, s.out1, dim=dim)


def cross_scattered(g: Tensor, s: Saved, dim: int) -> Tensor:
    """The gradient for log_softmax in operators that can be differentiated again."""
    picked = scattered(g, s, s.out2)
    if s.label_smoothing == 0.0:
        return picked
    shape = s.shape_of("self")
    each = call("where", s.target == s.ignore_index, 0.0, mean_share(g, s, s.out2))
    evenly = each.reshape((*shape[:dim], 1, *shape[dim + 1 :])) * (s.label_smoothing / shape[dim])
    if s.weight is not None:
        evenly = evenly * s.weight.reshape((-1, *(1,) * (len(shape) - dim - 1)))
    return picked * (1 - s.label_smoothing) - evenly


def mean_share(g: Tensor, s: Saved, total: Tensor) -> Tensor:
    return g / total.detach() if s.reduction == "mean" else g


def scattered(g: Tensor, s: Saved, total: Tensor) -> Tensor:
    """Minus the class weight at each target, zero at ignored ones."""
    dim = 0 if len(s.shape_of("self")) == 1 else 1
    ignored = s.target == s.ignore_index
    index = s.target.masked_fill(ignored, 0)
    weight = 1.0 if s.weight is None else call("index", s.weight, index)
    factor = call("where", ignored, 0.0, -(mean_share(g, s, total) * weight))
    shape = (*s.target.shape[:dim], 1, *s.target.shape[dim:])
    factor = factor.expand(s.target.shape).reshape(shape)
    return call("scatter", zeros(g, s, "self"), index.reshape(shape), factor, dim=dim)


def mse_self(g: Tensor, s: Saved, this: Tensor, other: Tensor) -> Tensor:
    if not _core.is_grad_enabled():
        return call("mse_loss_backward", g, this, other, reduction=s.reduction)
    count = math.prod(this.shape) if s.reduction == "mean" else 1
    return g * (this - other) * (2 / max(count, 1))
