"""Activation functions. With PyTorch's `inplace` the result is written to the input."""

from __future__ import annotations

import math
import warnings

import gt
from gt import _core
from gt._core import Tensor
from gt.composite.common import generic
from gt.composite.inplace import write
from gt.errors import ShapeError
from gt.tensors.aten.call import call
from gt.tensors.draws import Generator
from gt.tensors.kept import keeps


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0)."""
    x = _operand(input, inplace)
    return _finish(input, x.relu(), inplace)


def relu_(input: Tensor) -> Tensor:
    """relu in place."""
    return relu(input, inplace=True)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where positive, else negative_slope * input."""
    x = _operand(input, inplace)
    return _finish(input, _core.call("leaky_relu", x, negative_slope=negative_slope), inplace)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """leaky_relu in place."""
    return leaky_relu(input, negative_slope, inplace=True)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """leaky_relu with slopes drawn from [lower, upper) in training, else with their mean.

    Raises:
        RuntimeError: A `lower` above `upper`.
    """
    return _with_drawn_slopes(input, (lower, upper), training, inplace, generator)


def rrelu_(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """rrelu in place."""
    return _with_drawn_slopes(input, (lower, upper), training, True, generator)


@keeps(input="input")
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where it is above `threshold`, else `value`."""
    return _thresholded(input, threshold, value, inplace)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """threshold in place."""
    return _thresholded(input, threshold, value, inplace=True)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, input) + min(0, alpha * (exp(input / alpha) - 1)).

    Raises:
        RuntimeError: An `alpha` of zero.
    """
    x = _operand(input, inplace)
    result: Tensor = call("celu", (x, alpha), {})
    return _finish(input, result, inplace)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """celu in place."""
    return celu(input, alpha, inplace=True)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha * (exp(input) - 1)."""
    x = _operand(input, inplace)
    return _finish(input, _core.call("elu", x, alpha=alpha), inplace)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """elu in place."""
    return elu(input, alpha, inplace=True)


@keeps(input="input weight", weight="input weight")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """input where positive, else weight * input; a weight of several numbers has one for each
    channel.

    Raises:
        ShapeError: A weight of two dimensions or more, or with another size than the channels.
    """
    if weight.ndim > 1:
        raise ShapeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}"
        )
    if weight.numel() == 1:
        weight = weight.reshape(())
    elif input.ndim == 0:
        raise ShapeError("Not allow zero-dim input tensor")
    else:
        channels = input.shape[1] if input.ndim > 1 else 1
        if weight.numel() != channels:
            raise ShapeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{weight.numel()} and channel size = {channels}"
            )
        weight = weight.reshape(-1, *([1] * (input.ndim - 2)))
    return input * gt.where(input > 0, 1.0, weight)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu scaled so that layers of it keep mean 0 and variance 1."""
    x = _operand(input, inplace)
    return _finish(input, _SELU_SCALE * _core.call("elu", x, alpha=_SELU_ALPHA), inplace)


def selu_(input: Tensor) -> Tensor:
    """selu in place."""
    return selu(input, inplace=True)


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A random draw of classes with the gradient of a softmax.

    Args:
        logits: Unnormalised log probabilities.
        tau: Temperature: the lower, the closer to one class.
        hard: Returns exactly one class (a one), with the gradient of the soft draw.
        eps: Accepted and ignored, as in PyTorch.
        dim: The dimension of the classes.
    """
    del eps
    noise = -gt.empty_like(logits).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    chosen = soft.argmax(dim, keepdim=True)
    return gt.zeros_like(logits).scatter(dim, chosen, 1.0) - soft.detach() + soft


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """input * P(standard normal <= input); approximate="tanh" uses the cheaper formula."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return _core.call("gelu", input, approximate=approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input)."""
    x = _operand(input, inplace)
    return _finish(input, x.silu(), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input))."""
    x = _operand(input, inplace)
    return _finish(input, x * softplus(x).tanh(), inplace)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input))."""
    return input.sigmoid()


@keeps(input="input")
def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(input)), computed stably."""
    return -minus_logsigmoid(input)


def minus_logsigmoid(input: Tensor) -> Tensor:
    """-log(sigmoid(input)), for losses that add it."""
    return _core.call("softplus", -input, beta=1.0, threshold=_EXACT_SOFTPLUS)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return input.tanh()


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)."""
    return input - input.tanh()


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * input)) / beta; input itself where beta * input exceeds `threshold`."""
    return _core.call("softplus", input, beta=beta, threshold=threshold)


def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|)."""
    return input / (input.abs() + 1)


@keeps(input="input")
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """input limited to [min_val, max_val]; the gradient is 0 at both ends, unlike clamp's."""
    x = _operand(input, inplace)
    if x.dtype == gt.bool:
        return generic("hardtanh", x)  # PyTorch refuses this
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if not x.is_floating_point():
        min_val, max_val = int(min_val), int(max_val)
    exact = _exact(x.detach())
    outside = (exact <= min_val) | (exact >= max_val)  # NaN is not outside, and its gradient passes
    if math.isnan(min_val) or math.isnan(max_val):
        outside = ~exact.isnan()  # no number is within such bounds
    return _finish(input, gt.where(outside, x.detach().clamp(min_val, max_val), x), inplace)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """hardtanh in place."""
    return hardtanh(input, min_val, max_val, inplace=True)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """input limited to [0, 6]."""
    return hardtanh(input, 0.0, 6.0, inplace)


@keeps(input="input")
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """(input + 3) / 6 limited to [0, 1]."""
    x = _operand(input, inplace)
    if not x.is_floating_point():
        return generic("hardsigmoid", x)  # PyTorch refuses this
    exact = _exact(x)
    inside = (exact > -3) & (exact < 3)
    flat = (exact.detach() + 3).clamp(0, 6) / 6
    return _finish(input, gt.where(inside, (exact + 3) / 6, flat).to(x.dtype), inplace)


@keeps(input="input")
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input)."""
    x = _operand(input, inplace)
    if not x.is_floating_point():
        return generic("hardswish", x)  # PyTorch refuses this
    exact = _exact(x)
    inside = (exact > -3) & (exact < 3)
    bent = gt.where(
        inside, exact, 0.0
    )  # no infinity, whose gradient would be NaN though not chosen
    sides = gt.where(exact <= -3, exact.detach() * 0, exact)
    return _finish(input, gt.where(inside, bent * (bent + 3) / 6, sides).to(x.dtype), inplace)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of `dim` times the sigmoid of the second."""
    if input.shape[dim] % 2:
        size = input.shape[dim]
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    value, gate = input.chunk(2, dim)
    return value * gate.sigmoid()


def softmax(input: Tensor, dim: int | None = None, dtype: gt.dtype | None = None) -> Tensor:
    """exp(input) / sum(exp(input)) along `dim`, computed in `dtype` if given."""
    return _core.call("softmax", input, dim=_softmax_dim("softmax", input, dim), dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, dtype: gt.dtype | None = None) -> Tensor:
    """softmax of -input."""
    return softmax(-input, _softmax_dim("softmin", input, dim), dtype)


def log_softmax(input: Tensor, dim: int | None = None, dtype: gt.dtype | None = None) -> Tensor:
    """log(softmax(input)), computed stably."""
    return _core.call(
        "log_softmax", input, dim=_softmax_dim("log_softmax", input, dim), dtype=dtype
    )


# ---- helpers ----

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946
_EXACT_SOFTPLUS = (
    40.0  # above it log(1 + exp(x)) is x in float64 too; exp of it is far from float32's end
)


def _thresholded(input: Tensor, threshold: float, value: float, inplace: bool) -> Tensor:
    x = _operand(input, inplace)
    chosen = gt.where(_exact(x.detach()) <= threshold, gt.full_like(x, value).detach(), x)
    return _finish(input, chosen, inplace)


def _with_drawn_slopes(
    input: Tensor,
    limits: tuple[float, float],
    training: bool,
    inplace: bool,
    generator: Generator | None,
) -> Tensor:
    lower, upper = limits
    for name, limit in (("lower", lower), ("upper", upper)):
        if not math.isfinite(limit):
            raise RuntimeError(f"rrelu: {name} bound must be finite, got {limit}")
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    x = _operand(input, inplace)
    slopes = gt.rand_like(x, generator=generator) * (upper - lower) + lower
    return _finish(input, gt.where(x > 0, x, x * slopes), inplace)


def _exact(x: Tensor) -> Tensor:
    """The operand in float32 if it has half precision, in which bounds and sums would
    be rounded.
    """
    return x.float() if x.dtype in (gt.float16, gt.bfloat16) else x


def _operand(input: Tensor, inplace: bool) -> Tensor:
    """The formula's operand; with `inplace` the value before the write."""
    if not inplace:
        return input
    _core.check_writable(input)
    return _core.value_before(input)


def _finish(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    return write(input, result) if inplace else result


def _softmax_dim(name: str, input: Tensor, dim: int | None) -> int:
    """PyTorch's default dim: 0 for 0, 1 and 3 dims, else 1."""
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if input.ndim in (0, 1, 3) else 1
