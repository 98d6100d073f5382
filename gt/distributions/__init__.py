"""Probability distributions, transforms and divergences, as torch.distributions has them.

Everything is a function of gt's operators: samples follow from the generator's numbers
(gt/draws.py), so a layout changes none of them.
"""

from gt import missing
from gt.distributions import constraints, kl, kl_cross, kl_same
from gt.distributions.bernoulli import Bernoulli
from gt.distributions.beta import Beta
from gt.distributions.binomial import Binomial
from gt.distributions.categorical import Categorical
from gt.distributions.dirichlet import Dirichlet
from gt.distributions.distribution import Distribution
from gt.distributions.exp_family import ExponentialFamily
from gt.distributions.exponential import Exponential
from gt.distributions.gamma import Gamma
from gt.distributions.independent import Independent
from gt.distributions.kl import kl_divergence, register_kl
from gt.distributions.laplace import Laplace
from gt.distributions.multivariate_normal import MultivariateNormal
from gt.distributions.normal import Normal
from gt.distributions.one_hot_categorical import (
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from gt.distributions.poisson import Poisson
from gt.distributions.uniform import Uniform

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "ExponentialFamily",
    "Gamma",
    "Independent",
    "Laplace",
    "MultivariateNormal",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Poisson",
    "Uniform",
    "kl_divergence",
    "register_kl",
]

__getattr__ = missing.hook(__name__)


def __dir__() -> list[str]:
    """What users type."""
    return [*__all__, "constraints"]
