"""Gradients of the elementwise family; the engine sums and casts those of broadcast operands."""

import functools
import math
from typing import TypeAlias

from gt._core import Tensor, call
from gt.gradients.rules import Saved, gradient, refused, same, zero

Bound: TypeAlias = Tensor | float | None

gradient("neg", self=lambda g, s: -g)
gradient("abs", self=lambda g, s: g * s.self.sign())
gradient("exp", self=lambda g, s: g * s.out)
gradient("expm1", self=lambda g, s: g * (s.out + 1))
gradient("log", self=lambda g, s: g / s.self)
gradient("log1p", self=lambda g, s: g / (s.self + 1))
gradient("log2", self=lambda g, s: g / (s.self * math.log(2)))
gradient("log10", self=lambda g, s: g / (s.self * math.log(10)))
gradient("sqrt", self=lambda g, s: g / (2 * s.out))
gradient("rsqrt", self=lambda g, s: -0.5 * g * s.out**3)
gradient("reciprocal", self=lambda g, s: -g * (s.out * s.out))
gradient("square", self=lambda g, s: g * (2 * s.self))
gradient("sin", self=lambda g, s: g * s.self.cos())
gradient("cos", self=lambda g, s: g * -s.self.sin())
gradient("tan", self=lambda g, s: g * (1 + s.out.square()))
gradient("tanh", self=lambda g, s: call("tanh_backward", g, s.out))
gradient("sigmoid", self=lambda g, s: call("sigmoid_backward", g, s.out))
gradient("erf", self=lambda g, s: 2 / math.sqrt(math.pi) * (-s.self.square()).exp() * g)
gradient("relu", self=lambda g, s: call("relu_backward", g, s.out))
gradient("gelu", self=lambda g, s: call("gelu_backward", g, s.self, approximate=s.approximate))
gradient("silu", self=lambda g, s: call("silu_backward", g, s.self))
gradient("leaky_relu", self=lambda g, s: leaky_relu_backward(g, s))
gradient("elu", self=lambda g, s: call("elu_backward", g, s.self, alpha=s.alpha))
gradient("softplus", self=lambda g, s: softplus_backward(g, s))
gradient("cast", self=same)

for step in ("sign", "floor", "ceil", "round", "trunc"):
    gradient(step, self=zero)
gradient("full_like", self=None)
gradient("random_like", self=None)
for predicate in ("isnan", "isinf", "isfinite", "logical_not", "bitwise_not"):
    gradient(predicate, self=None)


def leaky_relu_backward(g: Tensor, s: Saved) -> Tensor:
    return call("leaky_relu_backward", g, s.self, negative_slope=s.negative_slope)


def softplus_backward(g: Tensor, s: Saved) -> Tensor:
    return call("softplus_backward", g, s.self, beta=s.beta, threshold=s.threshold)


# ---- two and three operands ----------------------------------------------------------------

gradient("add", self=same, other=same)
gradient("sub", self=same, other=lambda g, s: -g)
gradient("mul", self=lambda g, s: g * s.other, other=lambda g, s: g * s.self)
gradient(
    "div",
    self=lambda g, s: g / s.other,
    other=lambda g, s: -g * ((s.self / s.other) / s.other),
)
gradient("floor_divide", self=refused("floor_divide"), other=refused("floor_divide"))
gradient("remainder", self=same, other=lambda g, s: -g * floor_quotient(s.self, s.other))
gradient("fmod", self=same, other=lambda g, s: -g * (s.self / s.other).trunc())
gradient("pow", self=lambda g, s: pow_base(g, s), other=lambda g, s: pow_exponent(g, s))
gradient(
    "maximum",
    self=lambda g, s: unless_less(g, s.self, s.other),
    other=lambda g, s: unless_less(g, s.other, s.self),
)
gradient(
    "minimum",
    self=lambda g, s: unless_less(g, s.other, s.self),
    other=lambda g, s: unless_less(g, s.self, s.other),
)
gradient(
    "atan2",
    self=lambda g, s: g * s.other * inverse_or_zero(s.self * s.self + s.other * s.other),
    other=lambda g, s: g * -s.self * inverse_or_zero(s.self * s.self + s.other * s.other),
)
gradient(
    "where",
    condition=None,
    self=lambda g, s: call("where", s.condition, g, 0.0),
    other=lambda g, s: call("where", s.condition, 0.0, g),
)
gradient(
    "clamp",
    self=lambda g, s: clamp_self(g, s.self, s.min, s.max),
    min=lambda g, s: clamp_min(g, s.self, s.min, s.max),
    max=lambda g, s: clamp_max(g, s.self, s.min, s.max),
)
gradient(
    "masked_fill",
    self=lambda g, s: call("masked_fill", g, s.mask, 0.0),
    mask=None,
    value=lambda g, s: call("where", s.mask, g, 0.0),
)
gradient(
    "lerp",
    self=lambda g, s: g * (1 - s.weight),
    end=lambda g, s: g * s.weight,
    weight=lambda g, s: g * (s.end - s.self),
)

for comparison in ("eq", "ne", "lt", "le", "gt", "ge"):
    gradient(comparison, self=None, other=None)
for logical in ("logical_and", "logical_or", "logical_xor"):
    gradient(logical, self=None, other=None)
for bitwise in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    gradient(bitwise, self=None, other=None)


def inverse_or_zero(x: Tensor) -> Tensor:
    """1 / x, and 0 where x is 0."""
    return x.reciprocal().masked_fill(x == 0, 0.0)


def floor_quotient(x: Tensor | float, y: Tensor) -> Tensor:
    """A step function of both, so without a gradient of its own."""
    return (x.detach() if isinstance(x, Tensor) else x) // y.detach()


def pow_base(g: Tensor, s: Saved) -> Tensor:
    """d(x**y)/dx = y * x**(y-1), and 0 where y == 0 whatever x is."""
    if not isinstance(s.other, Tensor):
        slope = s.self if s.other == 2 else s.self ** (s.other - 1)
        return zero(g, s) if s.other == 0 else g * (s.other * slope)
    return call("where", s.other == 0, 0.0, g * (s.other * s.self ** (s.other - 1)))


def pow_exponent(g: Tensor, s: Saved) -> Tensor:
    """d(x**y)/dy = x**y * log(x), and 0 where x == 0 and y >= 0."""
    if not isinstance(s.self, Tensor):
        if s.self != 0:
            return g * (s.out * (math.log(s.self) if s.self > 0 else math.nan))
        return g * call("where", s.other >= 0, 0.0, s.out * -math.inf)
    still = (s.self == 0).logical_and(s.other >= 0)
    return g * call("where", still, 0.0, s.out * s.self.log())


def unless_less(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The gradient where `a` was not less than `b`; half of it where they tie."""
    return call("where", a == b, g / 2, g).masked_fill(a < b, 0.0)


def clamp_self(g: Tensor, x: Tensor, low: Bound, high: Bound) -> Tensor:
    """All strictly inside. At a number nothing; at a tensor half, all where both bounds meet."""
    if not isinstance(low, Tensor) and not isinstance(high, Tensor):
        tests = [x > low] if low is not None else []
        tests += [x < high] if high is not None else []
        return call("where", functools.reduce(Tensor.logical_and, tests), g, 0.0)
    if low is None or high is None:
        bound = low if high is None else high
        assert bound is not None, "without bounds there is no gradient to ask for"
        outside = x < bound if high is None else x > bound
        return call("where", x == bound, g / 2, g).masked_fill(outside, 0.0)
    tied = (x == low) != (x == high)
    return call("where", tied, g / 2, g).masked_fill((x < low).logical_or(x > high), 0.0)


def clamp_min(g: Tensor, x: Tensor, low: Tensor, high: Bound) -> Tensor:
    """What clamp_self leaves at and below the lower bound, where the bounds are not crossed."""
    if high is None:
        return unless_less(g, low, x)
    elsewhere = (x > low).logical_or(high < low).logical_or((low == high).logical_and(x == low))
    return call("where", x == low, g / 2, g).masked_fill(elsewhere, 0.0)


def clamp_max(g: Tensor, x: Tensor, low: Bound, high: Tensor) -> Tensor:
    """What clamp_self leaves at and above the upper bound; all where the bounds are crossed."""
    if low is None:
        return unless_less(g, x, high)
    elsewhere = (x < high).logical_or((high == low).logical_and(x == low))
    shared = call("where", x == high, g / 2, g).masked_fill(elsewhere, 0.0)
    return call("where", high < low, g, shared)
