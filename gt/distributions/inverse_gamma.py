"""The inverse gamma distribution."""

import math

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.gamma import Gamma
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import PowerTransform
from gt.distributions.utils import Value

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """Inverses of gamma distributed values.

    Args:
        concentration: their shape, positive.
        rate: their rate, positive; broadcast with `concentration`.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support: constraints.Constraint = constraints.positive
    has_rsample = True
    base_dist: Gamma

    def __init__(
        self, concentration: Value, rate: Value, validate_args: bool | None = None
    ) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        inverse = PowerTransform(gt.tensor(-1.0, dtype=base.rate.dtype))
        super().__init__(base, inverse, validate_args=validate_args)

    @property
    def concentration(self) -> Tensor:
        """The shape of the gamma distribution."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """Its rate."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return gt.where(a > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        finite = self.rate.square() / ((a - 1).square() * (a - 2))
        return gt.where(a > 2, finite, math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
