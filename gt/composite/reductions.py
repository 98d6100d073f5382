"""Reductions beyond the table: variance, norms, extremes with their indices, order."""

import math
from collections.abc import Iterable
from typing import TypeAlias

from gt import _core
from gt._core import Tensor, call
from gt.compat.return_types import FIELDS, Results, ValuesIndices, of, values_indices
from gt.composite.casts import TENSOR_CLASSES
from gt.composite.common import (
    Dims,
    Method,
    Number,
    Shape,
    dims,
    generic,
    integer,
    listed,
    not_a_tensor,
    slice_dim,
    wrap,
)
from gt.errors import IndexOutOfRange, InvalidType, NotSupported, ShapeError
from gt.tensors.kept import keeps

Correction: TypeAlias = Number | None


def variance_arguments(
    self: Tensor, dim: Dims | bool, unbiased: bool | None, correction: Correction
) -> tuple[tuple[int, ...] | None, float]:
    """Dimensions and correction of `var(False)`, `var(0, False)` or `var(0, correction=0)`."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if not self.dtype.is_floating_point:
        raise NotSupported("std and var only support floating point and complex dtypes")
    degrees = 1 if correction is None else correction
    amount = float(degrees if unbiased is None else unbiased)
    return (None if dim is None or listed(dim) == () else dims(dim, self.ndim)), amount


def var(
    self: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Correction = None,
) -> Tensor:
    """Variance over `dim`, divided by n - correction."""
    over, amount = variance_arguments(self, dim, unbiased, correction)
    return call("var", self, dim=over, correction=amount, keepdim=keepdim)


def std(
    self: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Correction = None,
) -> Tensor:
    """Standard deviation over `dim`; its gradient at zero is zero, as PyTorch's."""
    over, amount = variance_arguments(self, dim, unbiased, correction)
    return call("std", self, dim=over, correction=amount, keepdim=keepdim)


def var_mean(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Correction = None,
) -> tuple[Tensor, Tensor]:
    """Variance and mean over `dim`."""
    over, amount = variance_arguments(input, dim, unbiased, correction)
    variance = call("var", input, dim=over, correction=amount, keepdim=keepdim)
    return variance, call("mean", input, dim=over, keepdim=keepdim)


def std_mean(
    input: Tensor,
    dim: Dims | bool = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: Correction = None,
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean over `dim`."""
    over, amount = variance_arguments(input, dim, unbiased, correction)
    return (
        std(input, over, keepdim=keepdim, correction=amount),
        call("mean", input, dim=over, keepdim=keepdim),
    )


def norm(
    self: Tensor,
    p: Number | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    dtype: _core.dtype | None = None,
) -> Tensor:
    """The p-norm of the elements over `dim`; "fro" is 2. Its gradient at zero is zero."""
    if p == "nuc":
        x = self if dtype is None else call("cast", self, dtype=dtype)
        return generic(
            "linalg_matrix_norm", x, p, (-2, -1) if dim is None else listed(dim), keepdim
        )
    return _vector_norm(self, p, dim, keepdim, dtype)


@keeps(self="self out")
def _vector_norm(
    self: Tensor, p: Number | str | None, dim: Dims, keepdim: bool, dtype: _core.dtype | None
) -> Tensor:
    x = self if dtype is None else call("cast", self, dtype=dtype)
    if isinstance(p, str) and p != "fro":
        raise NotSupported(f"norm: unsupported p: {p!r}, only 'fro' and numbers")
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        kind = TENSOR_CLASSES[repr(x.dtype)].removesuffix("Tensor")
        raise NotSupported(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got " + kind
        )
    order = 2.0 if p is None or isinstance(p, str) else float(p)
    if x.dtype in {_core.float16, _core.bfloat16}:  # their powers soon overflow
        wide = norm(call("cast", x, dtype=_core.float32), p, dim, keepdim)
        return call("cast", wide, dtype=x.dtype)
    if x.dtype.is_complex:
        return generic(
            "linalg_vector_norm", x, order, None if dim is None else listed(dim), keepdim
        )
    over, magnitude = dims(dim, x.ndim), x.abs()
    if order < 0 or math.isinf(order):
        _check_identity(x, over, order, whole=dim is None or dim in ([], ()))
    if order == 0:
        count = x.sign().abs().masked_fill(x.isnan(), 1.0)  # NaN is not zero
        return call("sum", count, dim=over, keepdim=keepdim)
    if math.isinf(order):
        return _extreme_magnitude("amax" if order > 0 else "amin", magnitude, over, keepdim)
    if order == 1:
        return call("sum", magnitude, dim=over, keepdim=keepdim)
    power = x.square() if order == 2 else _power(magnitude, order)
    total = call("sum", power, dim=over, keepdim=keepdim)
    return safe_root(total, order)


def _check_identity(x: Tensor, over: Shape, order: float, *, whole: bool) -> None:
    """Raise PyTorch's error for a norm of no elements that has no value.

    Raises:
        ShapeError: There are no elements.
    """
    empty = [d for d in (range(x.ndim) if whole else over) if not x.shape[d]]
    if not empty:
        return
    text = f"linalg.vector_norm cannot compute the {_shown(order)} norm on "
    if whole:
        text += "an empty tensor because"
    else:
        text += f"the dimension {empty[0]}because this dimension is empty and"
    raise ShapeError(f"{text} the operation does not have an identity")


def _shown(order: float) -> str:
    return f"{int(order)}" if math.isfinite(order) and order == int(order) else f"{order}"


def _extreme_magnitude(kind: str, magnitude: Tensor, over: Shape, keepdim: bool) -> Tensor:
    """The largest or smallest magnitude; if it is NaN, no element gets a gradient."""
    if not magnitude.requires_grad:
        return call(kind, magnitude, dim=over, keepdim=keepdim)
    spoiled = call(kind, magnitude.detach(), dim=over, keepdim=True).isnan()
    largest = call(kind, magnitude.masked_fill(spoiled, 0.0), dim=over, keepdim=True)
    largest = largest.masked_fill(spoiled, math.nan)
    return largest if keepdim else largest.squeeze(over).clone()  # a new value, no view


def _power(magnitude: Tensor, order: float) -> Tensor:
    """magnitude**order, with gradient zero (not infinity) at zero where `order` is below 1."""
    if order > 1:
        return magnitude**order
    hole = magnitude == 0
    power = magnitude.masked_fill(hole, 1.0) ** order
    return power.masked_fill(hole, 0.0 if order > 0 else math.inf)


def safe_root(total: Tensor, order: float) -> Tensor:
    """The root, with gradient zero (not NaN) where `total` is zero."""
    hole = total == 0
    filled = total.masked_fill(hole, 1.0)
    root = filled.sqrt() if order == 2 else filled ** (1 / order)
    return root.masked_fill(hole, 0.0)


@keeps(self="self other out", other="self other out")
def dist(self: Tensor, other: Tensor | Number, p: Number = 2) -> Tensor:
    """The p-norm of the difference."""
    if not isinstance(other, Tensor):
        raise not_a_tensor("dist", "other", 2, other)
    return norm(self - other, p)


def extreme(
    kind: str, self: Tensor, dim: int | Tensor | None, keepdim: bool
) -> Tensor | ValuesIndices:
    """The three meanings of PyTorch's max and min."""
    if isinstance(dim, Tensor):
        return self.maximum(dim) if kind == "max" else self.minimum(dim)
    if dim is not None:
        place = wrap(dim, self.ndim)
        return values_indices(kind, call(f"{kind}_dim", self, dim=place, keepdim=keepdim))
    if 0 in self.shape:
        raise ShapeError(
            f"{kind}(): Expected reduction dim to be specified for input.numel() == 0. "
            "Specify the reduction dim with the 'dim' argument."
        )
    if self.dtype.is_complex:  # PyTorch refuses complex numbers
        return generic(kind, self)
    # A NaN gets the gradient without `dim`, and would spoil it with amax's ().
    return call(f"a{kind}", self, dim=None, keepdim=False)


def max_(
    self: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
) -> Tensor | ValuesIndices:
    """The maximum of all; of `dim` with its indices; or, with a tensor, of both elementwise."""
    return extreme("max", self, dim if other is None else other, keepdim)


def min_(
    self: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
) -> Tensor | ValuesIndices:
    """The minimum of all; of `dim` with its indices; or, with a tensor, of both elementwise."""
    return extreme("min", self, dim if other is None else other, keepdim)


def aminmax(self: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Results:
    """Minimum and maximum over `dim`."""
    if self.dtype.is_complex:
        kind = TENSOR_CLASSES[repr(self.dtype)].removesuffix("Tensor")
        raise InvalidType(f"aminmax not implemented for {kind}")
    if dim is None and 0 in self.shape:
        raise ShapeError(
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no "
            "identity."
        )
    over = dims(dim, self.ndim)
    if dim is not None and self.ndim and self.shape[over[0]] == 0:
        raise IndexOutOfRange(f"aminmax: Expected reduction dim {over[0]} to have non-zero size.")
    low = call("amin", self, dim=over, keepdim=keepdim)
    high = call("amax", self, dim=over, keepdim=keepdim)
    return of("aminmax", FIELDS["aminmax"])((low, high))


def sort(
    self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> ValuesIndices:
    """Sorted values along `dim` and their indices; equal ones keep their order."""
    place = wrap(dim, self.ndim)
    ordered = call("sort", self, dim=place, descending=descending, stable=stable)
    return values_indices("sort", ordered)


def argsort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """Indices that sort along `dim`."""
    return sort(self, dim, descending, stable).indices


def topk(
    self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> ValuesIndices:
    """The `k` largest (or smallest) values along `dim` and their indices."""
    place = wrap(dim, self.ndim)
    largest_ones = call("topk", self, k=k, dim=place, largest=largest, sorted=sorted)
    return values_indices("topk", largest_ones)


def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The k-th smallest value along `dim` and its index, k from 1."""
    if self.dtype == _core.bool:  # PyTorch refuses bools
        return values_indices("kthvalue", generic("kthvalue", self, k, dim, keepdim))
    k, place = integer(k, "k"), wrap(dim, self.ndim)
    size = self.shape[place] if self.ndim else 1
    if not 1 <= k <= size:
        raise ShapeError(f"kthvalue(): selected number k out of range for dimension {place}")
    ordered: Iterable[Tensor] = sort(self, place, stable=True)
    if self.ndim and keepdim:
        ordered = (slice_dim(x, place, k - 1, 1) for x in ordered)
    elif self.ndim:
        ordered = (call("select", x, dim=place, index=k - 1) for x in ordered)
    return values_indices("kthvalue", ordered)


def nanmean(
    self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: _core.dtype | None = None
) -> Tensor:
    """Mean over `dim` of the elements that are not NaN; NaN if all are."""
    if not self.dtype.is_floating_point or (dtype and not dtype.is_floating_point):
        return generic("nanmean", self, dim, keepdim, dtype=dtype)
    over = None if dim is None else tuple(listed(dim))
    count = call("sum", self.isnan().logical_not(), dim=over, keepdim=keepdim)
    return call("nansum", self, dim=over, keepdim=keepdim, dtype=dtype) / count


def renorm(self: Tensor, p: Number, dim: int, maxnorm: Number) -> Tensor:
    """`self` with each slice along `dim` scaled down to the p-norm `maxnorm` if it exceeds that."""
    is_plain = self.ndim > 1 and p > 0 and maxnorm >= 0 and self.dtype.is_floating_point
    if not is_plain or self.dtype in {_core.float16, _core.bfloat16}:
        return generic("renorm", self, p, dim, maxnorm)
    place = wrap(dim, self.ndim)
    others = tuple(at for at in range(self.ndim) if at != place)
    above = norm(self.detach(), p, others, keepdim=True) > maxnorm
    length = norm(self.masked_fill(above.logical_not(), 1.0), p, others, keepdim=True)
    return self * call("where", above, maxnorm / (length + 1e-7), 1.0)


def count_nonzero(self: Tensor, dim: Dims = None) -> Tensor:
    """Number of elements that are not zero."""
    return call("sum", self != 0, dim=dims(dim, self.ndim), keepdim=False)


METHODS: dict[str, Method] = {
    "var": var,
    "std": std,
    "norm": norm,
    "dist": dist,
    "max": max_,
    "min": min_,
    "aminmax": aminmax,
    "sort": sort,
    "argsort": argsort,
    "topk": topk,
    "kthvalue": kthvalue,
    "nanmean": nanmean,
    "renorm": renorm,
    "count_nonzero": count_nonzero,
}
