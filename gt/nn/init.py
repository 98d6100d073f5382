"""Initial values, in place: PyTorch's distributions from GT's generator (a seed
reproduces them).
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import ParamSpec

import numpy as np

import gt
from gt._core import Tensor
from gt.compat.random import drawn_like
from gt.tensors.draws import Generator, is_finite

P = ParamSpec("P")

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]

_LINEAR_LIKE = ("linear", "conv1d", "conv2d", "conv3d", "sigmoid")


def uniform_(
    tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with uniform values from [a, b)."""
    return _random(tensor, "uniform", a, b, generator)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with normally distributed values."""
    if not is_finite(tensor.dtype, mean, std):
        with gt.no_grad():
            return tensor.normal_(mean, std, generator=generator)
    return _random(tensor, "normal", mean, std, generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill with normally distributed values within [a, b], by inversion of the distribution
    function.

    erfinv has no instruction, so the quantiles come from bisection on erf.
    """
    low, high = (math.erf((end - mean) / (std * math.sqrt(2.0))) for end in (a, b))
    with gt.no_grad():
        values = _drawn(tensor, "uniform", gt.float64, low, high, generator)
        below, above = gt.full_like(values, -6.0), gt.full_like(values, 6.0)
        for _ in range(52):  # bits of a float64
            middle = (below + above) * 0.5
            less = middle.erf() < values
            below, above = gt.where(less, middle, below), gt.where(less, above, middle)
        value = (above * (std * math.sqrt(2.0)) + mean).clamp(a, b)
        return tensor.copy_(value)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with `val`."""
    with gt.no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Set to the identity matrix."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with gt.no_grad():
        return tensor.copy_(gt.eye(*tensor.shape, dtype=tensor.dtype))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Set to the identity as a kernel of a convolution [out, in, ...] of one to three
    dimensions.
    """
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    out, into, *field = tensor.shape
    if out % groups:
        raise ValueError("dim 0 must be divisible by groups")
    values = np.zeros(tuple(tensor.shape), np.float32)
    middle = tuple(size // 2 for size in field)
    each = out // groups
    for channel in range(min(each, into)):
        for group in range(groups):
            values[(group * each + channel, channel, *middle)] = 1
    with gt.no_grad():
        return tensor.copy_(gt.tensor(values))


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Set to an orthogonal matrix times `gain`: with orthonormal rows, or columns if there are more
    rows.

    Args:
        tensor: [n, ...], filled in place; the other dimensions count as one.
        gain: Factor of the matrix.
        generator: Generator to draw from; the default one if not given.
    """
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    with gt.no_grad():
        flat = tensor.new_empty((rows, columns))
        normal_(flat, generator=generator)
        q, r = gt.linalg.qr(flat.t() if rows < columns else flat)
        q = q * r.diagonal().sign()  # all orthogonal matrices are then equally likely
        q = q.t() if rows < columns else q
        return tensor.copy_(q.reshape(tensor.shape) * gain)


def sparse_(
    tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None
) -> Tensor:
    """Fill with normally distributed values, a fraction `sparsity` of each column with zeros.

    Args:
        tensor: [rows, columns], filled in place.
        sparsity: Fraction of zeros, rounded up to whole elements.
        std: Standard deviation of the other values.
        generator: Generator to draw from; the default one if not given.
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    zeros = math.ceil(sparsity * tensor.shape[0])
    with gt.no_grad():
        normal_(tensor, 0.0, std, generator)
        keys = _drawn(tensor, "uniform", gt.float32, 0.0, 1.0, generator)
        rank = keys.argsort(dim=0).argsort(dim=0)
        return tensor.copy_(tensor.masked_fill(rank < zeros, 0))


def xavier_uniform_(
    tensor: Tensor, gain: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Fill with uniform values of variance 2 gain^2 / (fan in + fan out)."""
    fan_in, fan_out = fans(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with normal values of variance 2 gain^2 / (fan in + fan out)."""
    fan_in, fan_out = fans(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill with uniform values of variance gain^2 / fan.

    Args:
        tensor: [out, in, ...], filled in place.
        a: Negative slope of the following leaky_relu.
        mode: "fan_in" keeps the variance in the forward pass, "fan_out" in the backward pass.
        nonlinearity: The following function; see calculate_gain.
        generator: Generator to draw from; the default one if not given.
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
    """Fill with normal values of variance gain^2 / fan; arguments as in kaiming_uniform_."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Factor of weights that keeps the variance constant over `nonlinearity`."""
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
    """Number of inputs and of outputs that one element of a weight [out, in, ...] joins."""
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
    """The next draw in the shape and layout of `like`."""
    return drawn_like(like, kind, dtype, generator, (first, second))


def _older(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """`function` under its name without the underscore, with PyTorch's warning."""
    name = function.__name__

    @functools.wraps(function)
    def warned(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        warnings.warn(
            f"`nn.init.{name[:-1]}` is now deprecated in favor of `nn.init.{name}`.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    warned.__name__ = name[:-1]
    return warned


uniform, normal, constant = _older(uniform_), _older(normal_), _older(constant_)
eye, dirac = _older(eye_), _older(dirac_)
sparse, orthogonal = _older(sparse_), _older(orthogonal_)
xavier_uniform, xavier_normal = _older(xavier_uniform_), _older(xavier_normal_)
kaiming_uniform, kaiming_normal = _older(kaiming_uniform_), _older(kaiming_normal_)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
