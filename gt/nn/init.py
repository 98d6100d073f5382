"""Initial values, in place: PyTorch's distributions from GT's generator (a seed repeats them)."""

from __future__ import annotations

import math

import gt
from gt import _core
from gt._core import Tensor
from gt.draws import Generator, next_draw

__all__ = [
    "calculate_gain",
    "constant_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_LINEAR_LIKE = ("linear", "conv1d", "conv2d", "conv3d", "sigmoid")


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform values in [a, b)."""
    return _random(tensor, "uniform", a, b, generator)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Normally distributed values."""
    return _random(tensor, "normal", mean, std, generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normally distributed values within [a, b], by the inverse of the distribution's function.

    erfinv is not in the instruction table, so the quantiles come from a search by halves on erf.
    """
    low, high = (math.erf((end - mean) / (std * math.sqrt(2.0))) for end in (a, b))
    with gt.no_grad():
        values = _drawn(tensor, "uniform", gt.float64, low, high, generator)
        below, above = gt.full_like(values, -6.0), gt.full_like(values, 6.0)
        for _ in range(52):  # a float64's bits
            middle = (below + above) * 0.5
            less = middle.erf() < values
            below, above = gt.where(less, middle, below), gt.where(less, above, middle)
        value = (above * (std * math.sqrt(2.0)) + mean).clamp(a, b)
        return tensor.copy_(value)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """`val` everywhere."""
    with gt.no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with gt.no_grad():
        return tensor.copy_(gt.eye(*tensor.shape, dtype=tensor.dtype))


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Uniform with variance 2 gain^2 / (fan in + fan out)."""
    fan_in, fan_out = fans(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with variance 2 gain^2 / (fan in + fan out)."""
    fan_in, fan_out = fans(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform with variance gain^2 / fan.

    Args:
        tensor: [out, in, ...], filled in place.
        a: The negative slope of the leaky_relu that follows.
        mode: "fan_in" keeps the forward pass's variance, "fan_out" the backward pass's.
        nonlinearity: What follows; see calculate_gain.
        generator: Whose draw it is; the default one's if not given.
    """
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal with variance gain^2 / fan; arguments as in kaiming_uniform_."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much weights must be larger so that variance survives `nonlinearity`."""
    if nonlinearity in _LINEAR_LIKE:
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs and outputs one element of a weight [out, in, ...] joins."""
    if tensor.ndim < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


# ---- helpers ----


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode.lower() not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = fans(tensor)
    fan = fan_in if mode.lower() == "fan_in" else fan_out
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


def _random(
    tensor: Tensor, kind: str, first: float, second: float, generator: Generator | None
) -> Tensor:
    with gt.no_grad():
        return tensor.copy_(_drawn(tensor, kind, tensor.dtype, first, second, generator))


def _drawn(
    like: Tensor,
    kind: str,
    dtype: gt.dtype,
    first: float,
    second: float,
    generator: Generator | None,
) -> Tensor:
    """The next draw of the shape of `like`, in its layout."""
    seed, draw = next_draw(generator)
    return _core.call(
        "random_like",
        like.detach(),
        size=tuple(like.shape),
        dtype=dtype,
        kind=kind,
        first=first,
        second=second,
        seed=seed,
        draw=draw,
    )


def __dir__() -> list[str]:
    """What users type; what this module needs itself is no part of it."""
    return __all__
