"""Gradients of indexing: reading becomes adding at the same places, and writing becomes reading."""

from typing import Any

from gt import _core
from gt._core import Tensor, call
from gt.gradients.rules import Saved, Shape, gradient, refused, same, sum_to, zeros

gradient("embedding", weight=lambda g, s: embedding_weight(g, s), indices=None)
gradient("embedding_backward", grad=refused("embedding_dense_backward"), indices=None)
gradient(
    "gather",
    self=lambda g, s: call("scatter_add", zeros(g, s, "self"), s.index, g, **along(s)),
    index=None,
)
gradient(
    "scatter",
    self=lambda g, s: call("scatter", g, s.index, 0.0, **along(s)),
    index=None,
    src=lambda g, s: fit(call("gather", g, s.index, **along(s)), s.shape_of("src")),
)
gradient(
    "scatter_add",
    self=same,
    index=None,
    src=lambda g, s: fit(call("gather", g, s.index, **along(s)), s.shape_of("src")),
)
gradient(
    "index_select",
    self=lambda g, s: call("index_add", zeros(g, s, "self"), s.index, g, **along(s)),
    index=None,
)
gradient(
    "index_add",
    self=same,
    index=None,
    source=lambda g, s: call("index_select", g, s.index, **along(s)),
)
gradient(
    "index",
    self=lambda g, s: call("index_put", zeros(g, s, "self"), g, *s.indices, accumulate=True),
    indices=None,
)
gradient(
    "index_put",
    self=lambda g, s: g if s.accumulate else overwritten(g, s),
    values=lambda g, s: sum_to(call("index", g, *s.indices), s.shape_of("values")),
    indices=None,
)
gradient("tril", self=lambda g, s: g.tril(s.diagonal))
gradient("triu", self=lambda g, s: g.triu(s.diagonal))
gradient("sort", self=lambda g, s: at_index(g[0], s))
gradient("topk", self=lambda g, s: at_index(g[0], s))


def along(s: Saved) -> dict[str, Any]:
    """The dimension, and which piece of it is there."""
    return {"dim": s.dim, "start": s.start, "total": s.total}


def embedding_weight(g: Tensor, s: Saved) -> Tensor:
    """One instruction; under create_graph in operators that can be differentiated again."""
    count = s.shape_of("weight")[0]
    if not _core.is_grad_enabled():
        padding = {} if s.padding_idx is None else {"padding_idx": s.padding_idx}
        place = {"start": s.start, "total": s.total}
        return call("embedding_backward", g, s.indices, num_weights=count, **padding, **place)
    if s.padding_idx is not None:
        rows = count if s.total is None else s.total
        padded = (s.indices == s.padding_idx % rows).reshape((*s.indices.shape, 1))
        g = g.masked_fill(padded, 0.0)
    if s.start is not None:
        g, indices = g.reshape(-1, g.shape[-1]), s.indices.reshape(-1)
        place = {"start": s.start, "total": s.total}
        return call("index_add", zeros(g, s, "weight"), indices, g, dim=0, **place)
    return call("index_put", zeros(g, s, "weight"), g, s.indices, accumulate=True)


def fit(g: Tensor, shape: Shape) -> Tensor:
    """Zeros for the part of a source that the index did not reach."""
    if g.shape == shape:
        return g
    missing = [n for d in reversed(range(g.ndim)) for n in (0, shape[d] - g.shape[d])]
    return call("pad", g, pad=tuple(missing), value=0.0)


def overwritten(g: Tensor, s: Saved) -> Tensor:
    nothing = call("full", size=(), value=0, dtype=g.dtype)
    return call("index_put", g, nothing, *s.indices, accumulate=False)


def at_index(g: Tensor, s: Saved) -> Tensor:
    if g.ndim == 0:
        return g
    return call("scatter", zeros(g, s, "self"), s.out1, g, dim=s.dim)
