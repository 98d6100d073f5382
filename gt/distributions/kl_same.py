"""Divergences of two distributions of one class."""

import math

import gt
from gt import Tensor
from gt.distributions.bernoulli import Bernoulli
from gt.distributions.beta import Beta
from gt.distributions.binomial import Binomial
from gt.distributions.categorical import Categorical
from gt.distributions.dirichlet import Dirichlet
from gt.distributions.exp_family import ExponentialFamily, slopes_of
from gt.distributions.exponential import Exponential
from gt.distributions.gamma import Gamma
from gt.distributions.independent import Independent
from gt.distributions.kl import kl_divergence, register_kl
from gt.distributions.laplace import Laplace
from gt.distributions.multivariate_normal import MultivariateNormal, half_log_det, mahalanobis
from gt.distributions.normal import Normal
from gt.distributions.one_hot_categorical import OneHotCategorical
from gt.distributions.operators import solve_triangular
from gt.distributions.poisson import Poisson
from gt.distributions.uniform import Uniform
from gt.distributions.utils import sum_rightmost
from gt.errors import InvalidValue, NotSupported
from gt.nn.functional import softplus

inf = math.inf


def weighted(weight: Tensor, ratio: Tensor, other: Tensor) -> Tensor:
    """weight * ratio; 0 where the weight is 0, else infinite where the other's weight is 0."""
    term = gt.where(other == 0, inf, weight * ratio)
    return gt.where(weight == 0, 0.0, term)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    ones = weighted(p.probs, softplus(-q.logits) - softplus(-p.logits), q.probs)
    return ones + weighted(1 - p.probs, softplus(q.logits) - softplus(p.logits), 1 - q.probs)


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Tensor:
    return weighted(p.probs, p.logits - q.logits, q.probs).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_categorical(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return kl_divergence(p._categorical, q._categorical)


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        raise NotSupported(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    trial = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return gt.where(p.total_count > q.total_count, inf, p.total_count * trial)


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    distance = ((p.loc - q.loc) / q.scale).square()
    return (ratio + distance - 1 - ratio.log()) / 2


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return distance / q.scale + ratio * (-distance / p.scale).exp() - ratio.log() - 1


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Tensor:
    ratio = (q.high - q.low) / (p.high - p.low)
    return gt.where((q.low > p.low) | (q.high < p.high), inf, ratio.log())


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    rates = b * (p.rate / q.rate).log() + (q.rate - p.rate) * (a / p.rate)
    return rates + b.lgamma() - a.lgamma() + (a - b) * a.digamma()


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    normalizers = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return normalizers + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    same_event(p, q, "Multivariate Normals")
    n, a, b = p.event_shape[0], p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    batch = gt.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a_whole, b_whole = a.expand((*batch, n, n)), b.expand((*batch, n, n))
    trace = solve_triangular(b_whole, a_whole).square().sum((-2, -1))
    distance = mahalanobis(b, q.loc - p.loc)
    return half_log_det(b) - half_log_det(a) + (trace + distance - n) / 2


@register_kl(Independent, Independent)
def _independent(p: Independent[ExponentialFamily], q: Independent[ExponentialFamily]) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """The Bregman divergence of the log normalizer, for a class of the user's."""
    if type(p) is not type(q):
        raise NotSupported(
            "The cross KL-divergence between different exponential families cannot"
            + " " * 29
            + "be computed using Bregman divergences"
        )
    first = [x.detach().requires_grad_() for x in p._natural_params]
    second = q._natural_params
    normalizer = p._log_normalizer(*first)
    slopes = slopes_of(normalizer, first)
    result = q._log_normalizer(*second) - normalizer
    for a, b, slope in zip(first, second, slopes, strict=True):
        result = result - sum_rightmost((b - a) * slope, len(q.event_shape))
    return result


def same_event(p: MultivariateNormal, q: MultivariateNormal, what: str) -> None:
    """PyTorch's error for vectors of different lengths."""
    if p.event_shape != q.event_shape:
        raise InvalidValue(
            f"KL-divergence between two {what} with"
            + " " * 26
            + "different event shapes cannot be computed"
        )
