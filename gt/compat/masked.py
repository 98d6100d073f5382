"""Reductions and normalizations of the elements that a mask selects, as in torch.masked.

Tensors are plain ones (there is no MaskedTensor): `mask` broadcasts to the input, and False
excludes an element. If no element is left, a reduction gives its neutral element (0 for sums, 1 for
products, infinities for extrema), and mean, median, variance and deviation give NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import gt
from gt._core import Tensor
from gt.compat import misses
from gt.composite.common import wrap
from gt.errors import IndexOutOfRange, NotSupported, ShapeError
from gt.tensors.aten.call import call

Dims = int | Sequence[int] | None
__all__ = [
    "amax",
    "amin",
    "argmax",
    "argmin",
    "cumprod",
    "cumsum",
    "log_softmax",
    "logaddexp",
    "logsumexp",
    "mean",
    "median",
    "norm",
    "normalize",
    "prod",
    "softmax",
    "softmin",
    "std",
    "sum",
    "var",
]


def sum(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The sum over `dim` (all if not given); small integers are summed in int64."""
    values = _filled(input, mask, 0)
    dims = _dims(dim, input.ndim)
    return values.sum(dims, keepdim=keepdim, dtype=_sum_dtype(input) if dtype is None else dtype)


def prod(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The product over `dim` (all if not given); small integers are multiplied in int64."""
    dims = _dims(dim, input.ndim)
    result = _filled(input, mask, 1).to(_sum_dtype(input) if dtype is None else dtype)
    for place in reversed(dims):
        result = result.prod(dim=place, keepdim=keepdim)
    return result


def cumsum(
    input: Tensor, dim: int, *, dtype: gt.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """The running sum along `dim`."""
    chosen = input.dtype if dtype is None else dtype
    return _filled(input, mask, 0).cumsum(_dims(dim, input.ndim)[0], dtype=chosen).to(chosen)


def cumprod(
    input: Tensor, dim: int, *, dtype: gt.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """The running product along `dim`."""
    chosen = input.dtype if dtype is None else dtype
    return _filled(input, mask, 1).cumprod(_dims(dim, input.ndim)[0], dtype=chosen).to(chosen)


def amax(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The largest element over `dim` (all if not given)."""
    values = _filled(input, mask, _lowest(input))
    return values.amax(_dims(dim, input.ndim), keepdim).to(input.dtype if dtype is None else dtype)


def amin(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The smallest element over `dim` (all if not given)."""
    values = _filled(input, mask, _highest(input))
    return values.amin(_dims(dim, input.ndim), keepdim).to(input.dtype if dtype is None else dtype)


def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Index of the largest element along `dim` or in the flat input, in the input's dtype."""
    place = _filled(input, mask, _lowest(input)).argmax(dim, keepdim)
    return place.to(input.dtype if dtype is None else dtype)


def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Index of the smallest element along `dim` or in the flat input, in the input's dtype."""
    place = _filled(input, mask, _highest(input)).argmin(dim, keepdim)
    return place.to(input.dtype if dtype is None else dtype)


def mean(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The mean over `dim` (all if not given).

    Raises:
        ValueError: The dtype has no fractions.
    """
    chosen = input.dtype if dtype is None else dtype
    if not (chosen.is_floating_point or chosen.is_complex):
        source = "Input" if dtype is None else "Optional"
        raise ValueError(
            f"mean(): Could not infer output dtype. {source} dtype must be either a floating point "
            f"or complex dtype. Got: {repr(chosen).replace('gt.', 'torch.')}"
        )
    total = sum(input, dim, keepdim=keepdim, dtype=chosen, mask=mask)
    return total / _count(input, dim, mask, keepdim=keepdim)


def median(
    input: Tensor,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The lower of the middle elements along `dim`.

    Raises:
        ValueError: A row of integers is masked completely (the masks of integers are read).
    """
    place = _dims(dim, input.ndim)[0]
    is_float = input.is_floating_point()
    values = _filled(input if is_float else input.float(), mask, math.nan)
    middle: Tensor = values.nanmedian(place, keepdim)[0]
    if is_float:
        return middle
    if middle.isnan().any():
        raise ValueError(
            "masked median expects no fully masked out rows if dtype is not floating point"
        )
    return middle.to(input.dtype if dtype is None else dtype)


def logsumexp(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The logarithm of the sum of exponentials over `dim` (all if not given)."""
    values = _filled(input, mask, _lowest(input))
    result: Tensor = values.logsumexp(_dims(dim, input.ndim), keepdim=keepdim)
    return result.to(input.dtype if dtype is None else dtype)


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: gt.dtype | None = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """log(exp(input) + exp(other)) of the elements that the two masks leave."""
    first = _filled(input, input_mask, _lowest(input))
    second = _filled(other, other_mask, _lowest(other))
    return gt.logaddexp(first, second).to(input.dtype if dtype is None else dtype)


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The norm of order `ord` of the vectors along `dim` (all elements if not given)."""
    order = 2.0 if ord is None else ord
    values = _filled(input, mask, math.inf if order == -math.inf else 0)
    dims = list(_dims(dim, input.ndim))
    length: Tensor = call("linalg_vector_norm", (values, order, dims, keepdim), {"dtype": dtype})
    return length


def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance over `dim` (all if not given): squares are divided by count - correction (1)."""
    if unbiased is not None and correction is not None:
        raise AssertionError("Only one of unbiased and correction may be given")
    _check_ordered(input)
    if mask is not None and mask.shape != input.shape:
        mask = mask.clone()  # it shares its value, as PyTorch broadcasts a copy
    less = 1.0 if correction is None else float(correction)
    less = float(unbiased) if unbiased is not None else less
    chosen = dtype or (input.dtype if input.is_floating_point() else gt.float32)
    computed = chosen if chosen.is_floating_point else gt.float32
    center = sum(input, dim, keepdim=True, dtype=chosen, mask=mask) / _count(
        input, dim, mask, keepdim=True
    )
    distance = input - center
    total = sum(distance * distance, dim, keepdim=keepdim, dtype=computed, mask=mask)
    count = _count(input, dim, mask, keepdim=keepdim)
    if less:
        count = (count.to(computed) - less).clamp(min=0)
    return (total / count).to(chosen)


def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The square root of `var`."""
    variance = var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask
    )
    return variance.sqrt()


def softmax(
    input: Tensor, dim: int, *, dtype: gt.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """exp(input) / sum(exp(input)) along `dim`."""
    values = _filled(input, mask, _lowest(input))
    return values.softmax(_dims(dim, input.ndim)[0], dtype=input.dtype if dtype is None else dtype)


def log_softmax(
    input: Tensor, dim: int, *, dtype: gt.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """The logarithm of softmax."""
    values = _filled(input, mask, _lowest(input))
    place = _dims(dim, input.ndim)[0]
    return values.log_softmax(place, dtype=input.dtype if dtype is None else dtype)


def softmin(
    input: Tensor, dim: int, *, dtype: gt.dtype | None = None, mask: Tensor | None = None
) -> Tensor:
    """softmax of -input."""
    values = -_filled(input, mask, _highest(input))
    return values.softmax(_dims(dim, input.ndim)[0], dtype=input.dtype if dtype is None else dtype)


def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: gt.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """input divided by its norm along `dim`, or by `eps` where that is larger."""
    chosen = input.dtype if dtype is None else dtype
    length = norm(input, ord, dim, keepdim=True, dtype=chosen, mask=mask)
    return _filled(input, mask, 0) / gt.maximum(length, gt.full((), eps, dtype=length.dtype))


# ---- helpers ----


def _filled(input: Tensor, mask: Tensor | None, value: float) -> Tensor:
    """The input with `value` where the mask is False."""
    if mask is None:
        return input
    return gt.where(_whole_mask(input, mask), input, gt.full((), value, dtype=input.dtype))


def _whole_mask(input: Tensor, mask: Tensor) -> Tensor:
    if mask.ndim > input.ndim:
        raise IndexOutOfRange(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the "
            "input)"
        )
    return mask.to(gt.bool).expand(input.shape)


def _count(input: Tensor, dim: Dims, mask: Tensor | None, *, keepdim: bool) -> Tensor:
    """Number of elements that the mask selects."""
    taking = gt.ones(input.shape, dtype=gt.bool) if mask is None else _whole_mask(input, mask)
    return taking.sum(_dims(dim, input.ndim), keepdim=keepdim)


def _dims(dim: Dims, ndim: int) -> tuple[int, ...]:
    """Dimensions in order, counted from the front; all if none is given."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    listed = (dim,) if isinstance(dim, int) else tuple(dim)
    dims: list[int] = []
    for place in listed:
        if place in dims:
            raise ShapeError(f"dim={place} appears multiple times in the list of dims")
        dims.append(wrap(place, max(ndim, 1)))
    return tuple(sorted(dims))


def _sum_dtype(input: Tensor) -> gt.dtype:
    return input.dtype if input.is_floating_point() or input.is_complex() else gt.int64


def _check_ordered(input: Tensor) -> None:
    if input.is_complex():
        raise NotSupported("gt.masked: not implemented for complex numbers")


def _lowest(input: Tensor) -> float:
    _check_ordered(input)
    return -math.inf if input.is_floating_point() else gt.iinfo(input.dtype).min


def _highest(input: Tensor) -> float:
    _check_ordered(input)
    return math.inf if input.is_floating_point() else gt.iinfo(input.dtype).max


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__
