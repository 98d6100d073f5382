"""Gradients that need control flow; the formulas in ops.toml, which define all others, call these.

They only emit instructions, so they can be differentiated again, and they read no value. PyTorch's
conventions hold at every kink. An operand is a tensor, or the number in its place.
"""

import functools
import math
from typing import TypeAlias

from gt._core import Tensor, call
from gt.tensors.dtypes import finfo

Shape: TypeAlias = tuple[int, ...]
Value: TypeAlias = Tensor | float
Bound: TypeAlias = Tensor | float | None


def pow_exponent(g: Tensor, x: Value, y: Tensor, out: Tensor) -> Tensor:
    """d(x**y)/dy = x**y * log(x), and 0 where x == 0 and y >= 0."""
    if not isinstance(x, Tensor):
        if x != 0:
            return g * (out * (math.log(x) if x > 0 else math.nan))
        return g * call("where", y >= 0, 0.0, out * -math.inf)
    still = (x == 0).logical_and(y >= 0)
    return g * call("where", still, 0.0, out * x.log())


def clamp_self(g: Tensor, x: Tensor, low: Bound, high: Bound) -> Tensor:
    """The gradient strictly inside the bounds: 0 at a number bound; half at a tensor bound, all
    where both meet.
    """
    if not isinstance(low, Tensor) and not isinstance(high, Tensor):
        tests = [x > low] if low is not None else []
        tests += [x < high] if high is not None else []
        return call("where", functools.reduce(Tensor.logical_and, tests), g, 0.0)
    if low is None or high is None:
        bound = low if high is None else high
        assert bound is not None, "without bounds there is no gradient to ask for"
        outside = x < bound if high is None else x > bound
        return call("where", x == bound, g / 2, g).masked_fill(outside, 0.0)
    tied = ((x == low) != (x == high)).logical_and(call("le", low, high))
    return call("where", tied, g / 2, g).masked_fill((x < low).logical_or(x > high), 0.0)


def clamp_min(g: Tensor, x: Value, low: Tensor, high: Bound) -> Tensor:
    """The gradient of clamp by its lower bound, at elements that are at or below it; 0 where the
    bounds are crossed.
    """
    if high is None:
        return _unless_less(g, low, x)
    here = call("ge", low, x).logical_and(low <= high)  # no NaN is among them
    here = here.logical_and(((low == high).logical_and(low == x)).logical_not())
    return call("where", here, call("where", low == x, g / 2, g), 0.0)


def clamp_max(g: Tensor, x: Value, low: Bound, high: Tensor) -> Tensor:
    """The gradient of clamp by its upper bound, at elements that are at or above it; all of it
    where the bounds are crossed.
    """
    if low is None:
        return _unless_less(g, x, high)
    here = (high <= x).logical_and(((high == low).logical_and(high == x)).logical_not())
    shared = call("where", here, call("where", high == x, g / 2, g), 0.0)
    return call("where", high < low, g, shared)


def _unless_less(g: Tensor, a: Value, b: Value) -> Tensor:
    """The gradient where `a` was not less than `b`; half of it where they are equal."""
    return call("where", call("eq", a, b), g / 2, g).masked_fill(call("lt", a, b), 0.0)


def repeat_self(g: Tensor, shape: Shape, repeats: Shape) -> Tensor:
    """The gradient summed over all copies."""
    sizes = (1,) * (len(repeats) - len(shape)) + shape
    blocks = g.reshape(tuple(n for pair in zip(repeats, sizes, strict=True) for n in pair))
    copies = tuple(range(0, 2 * len(sizes), 2))
    total = call("sum", blocks, dim=copies, keepdim=False) if copies else blocks
    return total.reshape(shape)


def grown(g: Tensor, shape: Shape) -> Tensor:
    """The gradient extended by zeros for the part of a source that the index did not reach."""
    missing = [n for d in reversed(range(g.ndim)) for n in (0, shape[d] - g.shape[d])]
    return call("pad", g, pad=tuple(missing), value=0.0)


def nll_loss_self(
    g: Tensor,
    shape: Shape,
    target: Tensor,
    weight: Tensor | None,
    total: Tensor,
    reduction: str,
    ignore_index: int,
) -> Tensor:
    """Minus the class weight at each target, zero at ignored ones; it can be
    differentiated again.
    """
    dim = 0 if len(shape) == 1 else 1
    ignored = target == ignore_index
    index = target.masked_fill(ignored, 0)
    each = 1.0 if weight is None else call("index", weight, index)
    factor = call("where", ignored, 0.0, -(_share(g, total, reduction) * each))
    place = (*target.shape[:dim], 1, *target.shape[dim:])
    factor = factor.expand(target.shape).reshape(place)
    zeros = call("full_like", g, size=shape, value=0, dtype=g.dtype)
    return call("scatter", zeros, index.reshape(place), factor, dim=dim)


def _share(g: Tensor, total: Tensor, reduction: str) -> Tensor:
    return g / total.detach() if reduction == "mean" else g


def cross_entropy_self(
    g: Tensor | None,
    along: Tensor | None,
    shape: Shape,
    target: Tensor,
    weight: Tensor | None,
    log_probs: Tensor,
    total: Tensor,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor:
    """Through the loss, and `along` the log_softmax, the second result; it can be differentiated
    again.
    """
    dim = 0 if len(shape) == 1 else 1
    if g is not None:
        through = nll_loss_self(g, shape, target, weight, total, reduction, ignore_index)
        if label_smoothing != 0.0:
            each = call("where", target == ignore_index, 0.0, _share(g, total, reduction))
            evenly = each.reshape((*shape[:dim], 1, *shape[dim + 1 :]))
            evenly = evenly * (label_smoothing / shape[dim])
            if weight is not None:
                evenly = evenly * weight.reshape((-1, *(1,) * (len(shape) - dim - 1)))
            through = through * (1 - label_smoothing) - evenly
        along = through if along is None else along + through
    assert along is not None, "neither result has a gradient"
    return call("log_softmax_backward", along, log_probs, dim=dim)


def batch_norm_input(g: Tensor, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """The gradient of batch_norm's input by operators that have gradients themselves."""
    normal, rstd = _standardized_channels(x, eps)
    g = g if weight is None else g * _of_channels(weight, x)
    level, slope = (y.mean(_others(x), keepdim=True) for y in (g, g * normal))
    return (g - level - normal * slope) * rstd


def batch_norm_weight(g: Tensor, x: Tensor, eps: float) -> Tensor:
    """The gradient of batch_norm's weight."""
    return (g * _standardized_channels(x, eps)[0]).sum(_others(x))


def batch_norm_bias(g: Tensor) -> Tensor:
    """The gradient of batch_norm's bias."""
    return g.sum(_others(g))


def _standardized_channels(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`x` with mean 0 and variance 1 in each channel, and the factor."""
    rstd = (x.var(_others(x), correction=0, keepdim=True) + eps).rsqrt()
    return (x - x.mean(_others(x), keepdim=True)) * rstd, rstd


def _others(x: Tensor) -> list[int]:
    """All dimensions except that of the channels."""
    return [dim for dim in range(x.ndim) if dim != 1]


def _of_channels(value: Tensor, x: Tensor) -> Tensor:
    """[channels] reshaped to broadcast over [batch, channels, ...]."""
    return value.reshape(-1, *([1] * (x.ndim - 2)))


def others_product(x: Tensor, dim: int | None) -> Tensor:
    """The product of all other elements along `dim`, or of all, in a differentiable form.

    It does not divide, so that it is right for any number of zeros.
    """
    if dim is None:
        return others_product(x.flatten(), 0).view(x.shape)
    if x.ndim == 0 or x.shape[dim] == 0:
        return call("full_like", x, size=x.shape, value=1, dtype=x.dtype)
    return _product_before(x, dim) * _product_before(x.flip(dim), dim).flip(dim)


def _product_before(x: Tensor, dim: int) -> Tensor:
    first = x.narrow(dim, 0, 1)
    one = call("full_like", first, size=first.shape, value=1, dtype=x.dtype)
    return call("cat", one, x.narrow(dim, 0, x.shape[dim] - 1).cumprod(dim), dim=dim)


def logcumsumexp_self(g: Tensor, x: Tensor, out: Tensor, dim: int) -> Tensor:
    """exp(x) * the reverse running sum of g / exp(out), by logarithms for each sign, since it would
    overflow.

    As in PyTorch, the dtype's lowest number stands in place of -infinity for zero gradients.
    """
    if g.ndim == 0:
        return g
    lowest, log = finfo(g.dtype).min, g.abs().log()
    rising, falling = (call("where", side, log, lowest) for side in (g > 0, g < 0))
    behind = [_logcumsumexp_from_behind(part - out, dim) + x for part in (rising, falling)]
    return behind[0].exp() - behind[1].exp()


def _logcumsumexp_from_behind(x: Tensor, dim: int) -> Tensor:
    reversed_sums = call("logcumsumexp", call("flip", x, dims=(dim,)), dim=dim)
    return call("flip", reversed_sums, dims=(dim,))
