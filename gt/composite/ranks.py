"""Reductions by the order of elements: medians, quantiles, the most frequent one."""

import math

from gt import _core
from gt._core import Tensor, call
from gt.compat.return_types import ValuesIndices, values_indices
from gt.composite.common import Method, generic, wrap
from gt.errors import IndexOutOfRange
from gt.tensors.kept import keeps

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The most frequent value along `dim`, the smallest of several, and one of its indices."""
    return values_indices("mode", call("mode", self, dim=dim, keepdim=keepdim))


def median(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | ValuesIndices:
    """The middle value (the lower one of two), over all, or along `dim` with its index.

    A NaN is the result if there is one, with the index of the first; empty tensors give PyTorch's
    result.
    """
    return _middle("median", self, dim, keepdim=keepdim)


def nanmedian(
    self: Tensor, dim: int | None = None, keepdim: bool = False
) -> Tensor | ValuesIndices:
    """`median` of the elements that are not NaN; NaN if all are."""
    return _middle("nanmedian", self, dim, keepdim=keepdim)


def _middle(name: str, self: Tensor, dim: int | None, *, keepdim: bool) -> Tensor | ValuesIndices:
    if dim is not None and 0 in self.shape and self.shape[wrap(dim, self.ndim)] == 0:
        raise IndexOutOfRange(
            f"median(): Expected reduction dim {wrap(dim, self.ndim)} to have non-zero size."
        )
    if 0 in self.shape or self.dtype == _core.bool or self.dtype.is_complex:
        return generic(name, self, *(() if dim is None else (dim, keepdim)))
    if dim is not None:
        return values_indices(name, call(f"{name}_dim", self, dim=dim, keepdim=keepdim))
    return _of_all(self, name)


@keeps(self="self out")
def _of_all(self: Tensor, name: str) -> Tensor:
    flat = self.reshape((math.prod(self.shape),))
    middle, _ = call(f"{name}_dim", flat.detach(), dim=0, keepdim=False)
    if not flat.requires_grad:
        return middle
    # The median again, by an operator whose gradient goes to all equal elements in equal parts.
    above = (flat > middle).logical_or(flat.isnan())
    share = call("amax", call("where", above, -math.inf, flat), dim=None, keepdim=False)
    # A NaN's gradient goes to all elements that are NaN.
    unknown = call("where", flat.isnan(), flat, 0.0).sum() / flat.isnan().sum()
    return call("where", middle.isnan(), unknown, share)


def quantile(
    self: Tensor,
    q: float | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The value with the fraction `q` of the elements below it, over all or along `dim`.

    Args:
        q: from 0 to 1; for a tensor of them PyTorch's operator gives all.
        dim: dimension; all elements if not given.
        keepdim: True keeps the dimension with size 1.
        interpolation: rule between two elements: linear, lower, higher, midpoint or nearest.
    """
    return _quantile("quantile", self, q, dim, keepdim, interpolation)


def nanquantile(
    self: Tensor,
    q: float | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """`quantile` of the elements that are not NaN; NaN if all are."""
    return _quantile("nanquantile", self, q, dim, keepdim, interpolation)


def _quantile(
    name: str,
    self: Tensor,
    q: float | Tensor,
    dim: int | None,
    keepdim: bool,
    interpolation: str,
) -> Tensor:
    is_plain = (
        isinstance(q, int | float)
        and 0 <= q <= 1
        and 0 not in self.shape
        and interpolation in INTERPOLATIONS
        and self.dtype in {_core.float32, _core.float64}
    )
    if not is_plain:
        return generic(name, self, q, dim, keepdim, interpolation=interpolation)
    rank, place = self.ndim, 0 if dim is None else wrap(dim, self.ndim)
    rows = self.reshape((math.prod(self.shape),)) if dim is None or rank == 0 else self
    ordered, _ = call("sort", rows, dim=place, descending=False, stable=False)
    last = rows.shape[place] - 1
    unknown = call("sum", rows.isnan(), dim=(place,), keepdim=True)
    if name == "nanquantile":
        last_rank = call("cast", last - unknown, dtype=self.dtype)
        at = (last_rank * q).clamp(min=0)
    else:  # NaN sorts last, and is the result if there is one
        # `where` of two numbers would have the default dtype.
        hidden = call("cast", unknown > 0, dtype=self.dtype)
        at = hidden * last + (1 - hidden) * (q * last)
    out = _between(ordered, at, place, interpolation)
    if dim is None:
        return out.reshape((1,) * rank if keepdim else ())
    return out.reshape(()) if rank == 0 else out if keepdim else out.squeeze(place)


def _between(ordered: Tensor, at: Tensor, dim: int, interpolation: str) -> Tensor:
    """The values at the positions `at`, interpolated where a position is not an integer."""
    if interpolation in {"lower", "higher", "nearest"}:
        word = {"lower": "floor", "higher": "ceil", "nearest": "round"}[interpolation]
        return call("gather", ordered, call("cast", call(word, at), dtype=_core.int64), dim=dim)
    low, high = (call("cast", call(word, at), dtype=_core.int64) for word in ("floor", "ceil"))
    below, above = (call("gather", ordered, place, dim=dim) for place in (low, high))
    weight = 0.5 if interpolation == "midpoint" else at - call("floor", at)
    return call("lerp", below, above, weight)


METHODS: dict[str, Method] = {
    "mode": mode,
    "median": median,
    "nanmedian": nanmedian,
    "quantile": quantile,
    "nanquantile": nanquantile,
}
