"""Probability distributions, transforms and divergences, as torch.distributions has them.

Everything is a function of gt's operators: samples follow from the generator's numbers
(gt/tensors/draws.py), so a layout changes none of them.
"""

from gt import documentation as _documentation
from gt.compat import misses
from gt.distributions import constraints, kl, kl_cross, kl_same, transforms, utils
from gt.distributions.bernoulli import Bernoulli
from gt.distributions.beta import Beta
from gt.distributions.binomial import Binomial
from gt.distributions.categorical import Categorical
from gt.distributions.cauchy import Cauchy
from gt.distributions.chi2 import Chi2
from gt.distributions.constraint_registry import biject_to, transform_to
from gt.distributions.continuous_bernoulli import ContinuousBernoulli
from gt.distributions.dirichlet import Dirichlet
from gt.distributions.distribution import Distribution
from gt.distributions.exp_family import ExponentialFamily
from gt.distributions.exponential import Exponential
from gt.distributions.fishersnedecor import FisherSnedecor
from gt.distributions.gamma import Gamma
from gt.distributions.generalized_pareto import GeneralizedPareto
from gt.distributions.geometric import Geometric
from gt.distributions.gumbel import Gumbel
from gt.distributions.half_cauchy import HalfCauchy
from gt.distributions.half_normal import HalfNormal
from gt.distributions.independent import Independent
from gt.distributions.inverse_gamma import InverseGamma
from gt.distributions.kl import kl_divergence, register_kl
from gt.distributions.kumaraswamy import Kumaraswamy
from gt.distributions.laplace import Laplace
from gt.distributions.lkj_cholesky import LKJCholesky
from gt.distributions.log_normal import LogNormal
from gt.distributions.logistic_normal import LogisticNormal
from gt.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from gt.distributions.mixture_same_family import MixtureSameFamily
from gt.distributions.multinomial import Multinomial
from gt.distributions.multivariate_normal import MultivariateNormal
from gt.distributions.negative_binomial import NegativeBinomial
from gt.distributions.normal import Normal
from gt.distributions.one_hot_categorical import (
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from gt.distributions.pareto import Pareto
from gt.distributions.poisson import Poisson
from gt.distributions.relaxed_bernoulli import RelaxedBernoulli
from gt.distributions.relaxed_categorical import RelaxedOneHotCategorical
from gt.distributions.studentT import StudentT
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)
from gt.distributions.uniform import Uniform
from gt.distributions.von_mises import VonMises
from gt.distributions.weibull import Weibull
from gt.distributions.wishart import Wishart

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
]

_documentation.attach(__name__, globals())
__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names."""
    return [*__all__, "constraints", "kl", "transforms", "utils"]
