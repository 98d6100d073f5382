"""Divergences of two distributions of different classes, as the cross entropy less the entropy.

KL(p || q) = -E_p[log q] - H(p). E_p[log q] needs the means under p of x, its square, log x, log(1 -
x) and exp(-t x): one function per class of p and mean, and one per class of q.
"""

import math
from collections.abc import Callable

import gt
from gt import Tensor
from gt.distributions.bernoulli import Bernoulli
from gt.distributions.beta import Beta
from gt.distributions.binomial import Binomial
from gt.distributions.continuous_bernoulli import ContinuousBernoulli
from gt.distributions.distribution import Distribution
from gt.distributions.exponential import Exponential
from gt.distributions.gamma import Gamma
from gt.distributions.gumbel import Gumbel
from gt.distributions.kl import register_kl
from gt.distributions.laplace import Laplace
from gt.distributions.normal import Normal
from gt.distributions.pareto import Pareto
from gt.distributions.poisson import Poisson
from gt.distributions.uniform import Uniform
from gt.distributions.utils import euler_constant

inf = math.inf
Class = type[Distribution]


def _x_log_x(x: Tensor) -> Tensor:
    return gt.xlogy(x, x)


def _uniform_log(p: Uniform) -> Tensor:
    return (_x_log_x(p.high) - _x_log_x(p.low)) / (p.high - p.low) - 1


def _uniform_log_rest(p: Uniform) -> Tensor:
    return (_x_log_x(1 - p.low) - _x_log_x(1 - p.high)) / (p.high - p.low) - 1


# The mean of log x, and of log(1 - x).
MEAN_LOG: dict[Class, Callable[..., Tensor]] = {
    Beta: lambda p: p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Exponential: lambda p: -euler_constant - p.rate.log(),
    Gamma: lambda p: p.concentration.digamma() - p.rate.log(),
    Pareto: lambda p: p.scale.log() + 1 / p.alpha,
    Uniform: _uniform_log,
}
MEAN_LOG_REST: dict[Class, Callable[..., Tensor]] = {Uniform: _uniform_log_rest}
# The mean of exp(-t x).
MEAN_EXP: dict[Class, Callable[..., Tensor]] = {
    Exponential: lambda p, t: p.rate / (p.rate + t),
    Gamma: lambda p, t: (1 + t / p.rate) ** (-p.concentration),
    Normal: lambda p, t: (0.5 * (t * p.scale).square() - t * p.loc).exp(),
    Uniform: lambda p, t: ((-t * p.low).exp() - (-t * p.high).exp()) / (t * (p.high - p.low)),
}


def mean_log(p: Distribution) -> Tensor:
    """E_p[log x]."""
    return MEAN_LOG[_class(p, MEAN_LOG)](p)


def mean_log_rest(p: Distribution) -> Tensor:
    """E_p[log(1 - x)]."""
    return MEAN_LOG_REST[_class(p, MEAN_LOG_REST)](p)


def mean_exp(p: Distribution, t: Tensor) -> Tensor:
    """E_p[exp(-t x)]."""
    return MEAN_EXP[_class(p, MEAN_EXP)](p, t)


def _class(p: Distribution, table: dict[Class, Callable[..., Tensor]]) -> Class:
    """The nearest of the table's classes, for a subclass too."""
    return next(c for c in type(p).__mro__ if c in table)


# -E_p[log q] for a class of q.
def _cross_normal(p: Distribution, q: Normal) -> Tensor:
    spread = p.variance + (p.mean - q.loc).square()
    return q.scale.log() + 0.5 * math.log(2 * math.pi) + spread / (2 * q.scale.square())


def _cross_exponential(p: Distribution, q: Exponential) -> Tensor:
    return q.rate * p.mean - q.rate.log()


def _cross_gamma(p: Distribution, q: Gamma) -> Tensor:
    a = q.concentration
    return a.lgamma() - a * q.rate.log() - (a - 1) * mean_log(p) + q.rate * p.mean


def _cross_beta(p: Distribution, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    normalizer = a.lgamma() + b.lgamma() - (a + b).lgamma()
    return normalizer - (a - 1) * mean_log(p) - (b - 1) * mean_log_rest(p)


def _cross_uniform(p: Distribution, q: Uniform) -> Tensor:
    return (q.high - q.low).log()


def _cross_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return q.rate - p.probs * q.rate.log()  # the factorial of 0 and 1 is 1


def _cross_laplace(p: Normal, q: Laplace) -> Tensor:
    """By the mean of the distance |x - m| of a normal x from m (Leone and others, 1961)."""
    deviation = p.loc - q.loc
    units = deviation / (math.sqrt(2) * p.scale)
    distance = math.sqrt(2 / math.pi) * p.scale * (-units.square()).exp() + deviation * units.erf()
    return (2 * q.scale).log() + distance / q.scale


def _cross_gumbel(p: Distribution, q: Gumbel) -> Tensor:
    units = (p.mean - q.loc) / q.scale
    return q.scale.log() + units + (q.loc / q.scale).exp() * mean_exp(p, 1 / q.scale)


def _cross_pareto(p: Distribution, q: Pareto) -> Tensor:
    return (q.alpha + 1) * mean_log(p) - q.alpha.log() - q.alpha * q.scale.log()


def _cross_continuous_bernoulli(p: Distribution, q: ContinuousBernoulli) -> Tensor:
    return -p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()


CROSS: dict[tuple[Class, Class], Callable[..., Tensor]] = {
    (Bernoulli, Poisson): _cross_poisson,
    (Beta, ContinuousBernoulli): _cross_continuous_bernoulli,
    (Beta, Exponential): _cross_exponential,
    (Beta, Gamma): _cross_gamma,
    (Beta, Normal): _cross_normal,
    (Beta, Uniform): _cross_uniform,
    (ContinuousBernoulli, Exponential): _cross_exponential,
    (ContinuousBernoulli, Normal): _cross_normal,
    (ContinuousBernoulli, Uniform): _cross_uniform,
    (Exponential, Gamma): _cross_gamma,
    (Exponential, Gumbel): _cross_gumbel,
    (Exponential, Normal): _cross_normal,
    (Gamma, Exponential): _cross_exponential,
    (Gamma, Gumbel): _cross_gumbel,
    (Gamma, Normal): _cross_normal,
    (Gumbel, Normal): _cross_normal,
    (Laplace, Normal): _cross_normal,
    (Normal, Gumbel): _cross_gumbel,
    (Normal, Laplace): _cross_laplace,
    (Pareto, Exponential): _cross_exponential,
    (Pareto, Gamma): _cross_gamma,
    (Pareto, Normal): _cross_normal,
    (Uniform, Beta): _cross_beta,
    (Uniform, ContinuousBernoulli): _cross_continuous_bernoulli,
    (Uniform, Exponential): _cross_exponential,
    (Uniform, Gamma): _cross_gamma,
    (Uniform, Gumbel): _cross_gumbel,
    (Uniform, Pareto): _cross_pareto,
    (Uniform, Normal): _cross_normal,
}
# Conditions of an infinite divergence: p has values outside of q's support.
OUTSIDE: dict[tuple[Class, Class], Callable[..., Tensor]] = {
    (Beta, Uniform): lambda p, q: (q.low > 0) | (q.high < 1),
    # PyTorch returns infinity where an end of the interval is reached, too.
    (ContinuousBernoulli, Uniform): lambda p, q: (q.low >= 0) | (q.high <= 1),
    (Uniform, ContinuousBernoulli): lambda p, q: (p.high >= 1) | (p.low <= 0),
    (Pareto, Exponential): lambda p, q: p.alpha <= 1,  # no mean
    (Pareto, Gamma): lambda p, q: p.alpha <= 1,
    (Pareto, Normal): lambda p, q: p.alpha <= 2,  # no variance
    (Uniform, Beta): lambda p, q: (p.high > 1) | (p.low < 0),
    (Uniform, Exponential): lambda p, q: p.low < 0,
    (Uniform, Gamma): lambda p, q: p.low < 0,
    (Uniform, Pareto): lambda p, q: p.low < q.scale,
}
# Classes p -> classes q whose support never holds all of p's values.
NEVER_INSIDE: dict[Class, tuple[Class, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def infinite(p: Distribution, q: Distribution) -> Tensor:
    """Infinity of the batch shape of `p`."""
    return gt.full_like(p.mean.detach(), inf)


def register_pair(pair: tuple[Class, Class]) -> None:
    """Registers the functions of CROSS and OUTSIDE for two classes."""
    cross, outside = CROSS[pair], OUTSIDE.get(pair)

    def divergence(p: Distribution, q: Distribution) -> Tensor:
        result = cross(p, q) - p.entropy()
        return result if outside is None else gt.where(outside(p, q), inf, result)

    register_kl(*pair)(divergence)


for _pair in CROSS:
    register_pair(_pair)
for _p, _others in NEVER_INSIDE.items():
    for _q in _others:
        register_kl(_p, _q)(infinite)
