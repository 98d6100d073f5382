"""Draws of gamma and Dirichlet distributions from uniform and normal numbers, and their gradients.

Every value follows from the generator's numbers at its place, so a layout changes none.
"""

import math
from collections.abc import Sequence
from typing import Any

import gt
from gt import Tensor
from gt.autograd import Function
from gt.autograd.function import once_differentiable
from gt.tensors.aten.call import call as generic
from gt.tensors.draws import Generator

# Proposals per value: each is rejected with probability below 0.05 (0.0483 for the shape 1, less
# above), so all are with probability below 1e-13; then the value is the distribution's mode.
PROPOSALS = 10


def uniform_inside(shape: Sequence[int], dtype: gt.dtype, generator: Generator | None) -> Tensor:
    """Uniform numbers of (0, 1)."""
    tiny = gt.finfo(dtype).tiny
    return gt.rand(tuple(shape), dtype=dtype, generator=generator).clamp(min=tiny)


def log_standard_gamma(concentration: Tensor, generator: Generator | None = None) -> Tensor:
    """Logarithms of gamma distributed values with rate 1, without gradients.

    Marsaglia and Tsang, A simple method for generating gamma variables (2000): d v with
    v = (1 + c x)**3, x normal, accepted by a uniform number; for a shape a < 1 a value of a + 1
    times a uniform number to the power 1 / a, here as a sum of logarithms, which do not underflow.
    """
    shape, dtype = concentration.shape, concentration.dtype
    a = concentration.detach()
    is_small = a < 1
    d = gt.where(is_small, a + 1, a) - 1 / 3
    c = 1 / (9 * d).sqrt()
    proposals = (PROPOSALS, *shape)
    x = gt.randn(proposals, dtype=dtype, generator=generator)
    u = uniform_inside(proposals, dtype, generator)
    v = (1 + c * x) ** 3
    log_v = v.clamp(min=gt.finfo(dtype).tiny).log()
    is_accepted = (v > 0) & (u.log() < x * x / 2 + d * (1 - v + log_v))
    first = is_accepted.int().argmax(0, keepdim=True)  # argmax: the first of equal ones
    chosen = gt.where(is_accepted.any(0), log_v.gather(0, first).squeeze(0), 0.0)
    boost = uniform_inside(shape, dtype, generator).log() / a
    return d.log() + chosen + gt.where(is_small, boost, 0.0)


class _StandardGamma(Function):
    """exp of `log_standard_gamma`, with implicit gradients (Figurnov and others, 2018)."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, generator: Generator | None) -> Tensor:
        value = log_standard_gamma(concentration, generator).exp()
        value = value.clamp(min=gt.finfo(value.dtype).tiny)
        ctx.save_for_backward(concentration, value)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        concentration, value = ctx.saved_tensors
        return grad * generic("_standard_gamma_grad", (concentration, value), {}), None


class _Dirichlet(Function):
    """Gamma distributed values over their sum, with implicit gradients."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor) -> Tensor:
        value = log_standard_gamma(concentration).softmax(-1)
        info = gt.finfo(value.dtype)
        value = value.clamp(min=info.tiny, max=1 - info.eps / 2)
        ctx.save_for_backward(concentration, value)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        concentration, value = ctx.saved_tensors
        total = concentration.sum(-1, keepdim=True).expand(concentration.shape)
        slope = generic("_dirichlet_grad", (value, concentration, total.contiguous()), {})
        return slope * (grad - (value * grad).sum(-1, keepdim=True))


def standard_gamma(concentration: Tensor, generator: Generator | None = None) -> Tensor:
    """Gamma distributed values with rate 1, of the shape and dtype of `concentration`."""
    return _StandardGamma.apply(concentration, generator)


def dirichlet(concentration: Tensor) -> Tensor:
    """Points of the simplex: [..., k] -> [..., k]."""
    return _Dirichlet.apply(concentration)


LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
