"""Divergences of two distributions of one class."""

import math

import gt
from gt import Tensor
from gt.distributions.bernoulli import Bernoulli
from gt.distributions.beta import Beta
from gt.distributions.binomial import Binomial
from gt.distributions.categorical import Categorical
from gt.distributions.cauchy import Cauchy
from gt.distributions.continuous_bernoulli import ContinuousBernoulli
from gt.distributions.dirichlet import Dirichlet
from gt.distributions.distribution import Distribution
from gt.distributions.exp_family import ExponentialFamily, slopes_of
from gt.distributions.exponential import Exponential
from gt.distributions.gamma import Gamma
from gt.distributions.geometric import Geometric
from gt.distributions.gumbel import Gumbel
from gt.distributions.half_normal import HalfNormal
from gt.distributions.independent import Independent
from gt.distributions.kl import kl_divergence, register_kl
from gt.distributions.laplace import Laplace
from gt.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from gt.distributions.multivariate_normal import MultivariateNormal, half_log_det, mahalanobis
from gt.distributions.normal import Normal
from gt.distributions.one_hot_categorical import OneHotCategorical
from gt.distributions.operators import solve_triangular
from gt.distributions.pareto import Pareto
from gt.distributions.poisson import Poisson
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.uniform import Uniform
from gt.distributions.utils import euler_constant, sum_rightmost
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
    trace, distance = _solved_squares(b, a), mahalanobis(b, q.loc - p.loc)
    return half_log_det(b) - half_log_det(a) + (trace + distance - n) / 2


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p: LowRankMultivariateNormal, q: LowRankMultivariateNormal) -> Tensor:
    same_event(p, q, "Low Rank Multivariate Normals")
    root = p._unbroadcasted_cov_diag.sqrt()
    trace = _trace(q, p._unbroadcasted_cov_factor) + _trace(q, root.diag_embed())
    log_dets = q._log_det() - p._log_det()
    return (log_dets + trace + q._mahalanobis(q.loc - p.loc) - p.event_shape[0]) / 2


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _full_and_low_rank(p: MultivariateNormal, q: LowRankMultivariateNormal) -> Tensor:
    same_event(p, q, "(Low Rank) Multivariate Normals")
    factor = p._unbroadcasted_scale_tril
    log_dets = q._log_det() - 2 * half_log_det(factor)
    distance = q._mahalanobis(q.loc - p.loc)
    return (log_dets + _trace(q, factor) + distance - p.event_shape[0]) / 2


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_and_full(p: LowRankMultivariateNormal, q: MultivariateNormal) -> Tensor:
    same_event(p, q, "(Low Rank) Multivariate Normals")
    factor, root = q._unbroadcasted_scale_tril, p._unbroadcasted_cov_diag.sqrt().diag_embed()
    trace = _solved_squares(factor, p._unbroadcasted_cov_factor) + _solved_squares(factor, root)
    log_dets = 2 * half_log_det(factor) - p._log_det()
    return (log_dets + trace + mahalanobis(factor, q.loc - p.loc) - p.event_shape[0]) / 2


def _trace(q: LowRankMultivariateNormal, root: Tensor) -> Tensor:
    """tr(q's precision times B B') for B = `root`, by D^-1 - A' A."""
    diagonal = root / q._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
    return diagonal.square().sum((-2, -1)) - (q._solved() @ root).square().sum((-2, -1))


def _solved_squares(factor: Tensor, right: Tensor) -> Tensor:
    """The sum of the squares of L^-1 B; batches broadcast."""
    batch = gt.broadcast_shapes(factor.shape[:-2], right.shape[:-2])
    wide = [x.expand((*batch, *x.shape[-2:])) for x in (factor, right)]
    return solve_triangular(*wide).square().sum((-2, -1))


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    both = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return both.log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, distance = p.scale / q.scale, (q.loc - p.loc) / q.scale
    euler = euler_constant * (ratio - 1)
    return euler - ratio.log() - distance + (distance + (1 + ratio).lgamma()).exp() - 1


@register_kl(Geometric, Geometric)
def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Pareto, Pareto)
def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return gt.where(p.scale < q.scale, inf, result)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    first, second = (d._cont_bern_log_norm() + (-d.probs).log1p() for d in (p, q))
    return p.mean * (p.logits - q.logits) + first - second


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


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


def same_event(p: Distribution, q: Distribution, what: str) -> None:
    """PyTorch's error for vectors of different lengths."""
    if p.event_shape != q.event_shape:
        raise InvalidValue(
            f"KL-divergence between two {what} with"
            + " " * 26
            + "different event shapes cannot be computed"
        )
