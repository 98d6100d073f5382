"""Gradients of reductions: what came out goes back to the elements that it came from."""

import math

from gt._core import Tensor, call
from gt.gradients.rules import Saved, cast, dims_of, gradient, keep, reduced_count, spread, zeros

gradient("sum", self=spread)
gradient("mean", self=lambda g, s: spread(g, s) / max(reduced_count(s.shape_of("self"), s.dim), 1))
gradient("prod", self=lambda g, s: prod_backward(g, s))
gradient("amax", self=lambda g, s: shared_extreme(g, s))
gradient("amin", self=lambda g, s: shared_extreme(g, s))
gradient("max_dim", self=lambda g, s: extreme_at_index(g[0], s))
gradient("min_dim", self=lambda g, s: extreme_at_index(g[0], s))
gradient("var", self=lambda g, s: var_backward(g, s))
gradient("logsumexp", self=lambda g, s: logsumexp_backward(g, s))
gradient("cumsum", self=lambda g, s: cumsum_backward(g, s))
for test in ("argmax", "argmin", "all", "any"):
    gradient(test, self=None)


def prod_backward(g: Tensor, s: Saved) -> Tensor:
    """The product of all others, without dividing by zero and without reading a value.

    One zero: only its own gradient differs from zero. With two zeros the second derivative for that
    pair is lost.
    """
    shape, x = s.shape_of("self"), cast(s.self, g.dtype)
    g, product = keep(g, shape, s.dim), keep(s.out, shape, s.dim)
    hole = x == 0
    filled = call("where", hole, 1.0, x)
    holes = keep(hole.sum(s.dim if s.dim is None else (s.dim,)), shape, s.dim)
    others = keep(call("prod", filled, dim=s.dim, keepdim=False), shape, s.dim)
    at_hole = call("where", holes == 1, others, 0.0)
    return g * call("where", hole, at_hole, product / filled)


def shared_extreme(g: Tensor, s: Saved) -> Tensor:
    shape = s.shape_of("self")
    chosen = s.self == keep(s.out, shape, s.dim)
    count = call("sum", chosen, dim=dims_of(s.dim, len(shape)), keepdim=True)
    return keep(g, shape, s.dim) * chosen / count


def extreme_at_index(g: Tensor, s: Saved) -> Tensor:
    shape = s.shape_of("self")
    if not shape:
        return g
    index = keep(s.out1, shape, s.dim)
    return call("scatter", zeros(g, s, "self"), index, keep(g, shape, s.dim), dim=s.dim)


def var_backward(g: Tensor, s: Saved) -> Tensor:
    shape, dims = s.shape_of("self"), dims_of(s.dim, s.self.ndim)
    freedom = reduced_count(shape, dims) - s.correction
    factor = 2 / freedom if freedom else math.inf
    return factor * keep(g, shape, dims) * (s.self - call("mean", s.self, dim=dims, keepdim=True))


def logsumexp_backward(g: Tensor, s: Saved) -> Tensor:
    shape = s.shape_of("self")
    return keep(g, shape, s.dim) * (s.self - keep(s.out, shape, s.dim)).exp()


def cumsum_backward(g: Tensor, s: Saved) -> Tensor:
    return g if g.ndim == 0 else g.flip((s.dim,)).cumsum(s.dim).flip((s.dim,))
