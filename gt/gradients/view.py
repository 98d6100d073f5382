"""Gradients of views: the gradient moved back, zeros where nothing came from."""

from gt._core import Tensor, call
from gt.gradients.rules import Saved, Shape, gradient, same, sum_to, zeros

gradient("reshape", self=lambda g, s: g.reshape(s.shape_of("self")))
gradient("permute", self=lambda g, s: g.permute(inverse(s.dims)))
gradient("expand", self=lambda g, s: sum_to(g, s.shape_of("self")))
gradient("slice", self=lambda g, s: call("slice_scatter", zeros(g, s, "self"), g, **span(s)))
gradient(
    "select",
    self=lambda g, s: call("select_scatter", zeros(g, s, "self"), g, dim=s.dim, index=s.index),
)
gradient(
    "diagonal", self=lambda g, s: call("diagonal_scatter", zeros(g, s, "self"), g, **corner(s))
)
gradient(
    "slice_scatter",
    self=lambda g, s: call("slice_scatter", g, zeros(g, s, "src"), **span(s)),
    src=lambda g, s: call("slice", g, **span(s)),
)
gradient(
    "select_scatter",
    self=lambda g, s: call("select_scatter", g, zeros(g, s, "src"), dim=s.dim, index=s.index),
    src=lambda g, s: call("select", g, dim=s.dim, index=s.index),
)
gradient(
    "diagonal_scatter",
    self=lambda g, s: call("diagonal_scatter", g, zeros(g, s, "src"), **corner(s)),
    src=lambda g, s: call("diagonal", g, **corner(s)),
)
gradient("flip", self=lambda g, s: g.flip(s.dims))
gradient("pad", self=lambda g, s: call("pad", g, pad=tuple(-n for n in s.pad), value=0.0))
gradient("repeat", self=lambda g, s: repeat_backward(g, s.shape_of("self"), s.repeats))
gradient("cat", tensors=lambda g, s, k: cat_backward(g, s, k))
gradient("stack", tensors=lambda g, s, k: call("select", g, dim=s.dim % g.ndim, index=k))
gradient("distribute", self=same)


def inverse(dims: Shape) -> Shape:
    """The permutation that undoes `dims`."""
    wanted = [d % len(dims) for d in dims]
    return tuple(wanted.index(d) for d in range(len(dims)))


def span(s: Saved) -> dict[str, int]:
    return {"dim": s.dim, "start": s.start, "end": s.end, "step": s.step}


def corner(s: Saved) -> dict[str, int]:
    return {"offset": s.offset, "dim1": s.dim1, "dim2": s.dim2}


def repeat_backward(g: Tensor, shape: Shape, repeats: Shape) -> Tensor:
    """The sum over all copies."""
    sizes = (1,) * (len(repeats) - len(shape)) + shape
    folded = g.reshape(tuple(n for pair in zip(repeats, sizes, strict=True) for n in pair))
    copies = tuple(range(0, 2 * len(sizes), 2))
    total = call("sum", folded, dim=copies, keepdim=False) if copies else folded
    return total.reshape(shape)


def cat_backward(g: Tensor, s: Saved, k: int) -> Tensor:
    """The piece of the k-th tensor; an empty vector, allowed anywhere, takes no place."""
    dim, shape = s.dim % g.ndim, s.shape_of("tensors", k)
    if len(shape) != g.ndim:
        return zeros(g, s, "tensors", k)
    before = [s.shape_of("tensors", i) for i in range(k)]
    start = sum(shape[dim] for shape in before if len(shape) == g.ndim)
    return call("slice", g, dim=dim, start=start, end=start + shape[dim], step=1)
