"""Base of the halves of symmetric distributions: the absolute value of a sample around 0."""

import math

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.location_scale import LocationScale
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import AbsTransform


class Half(TransformedDistribution):
    """|x| of a symmetric distribution around 0."""

    arg_constraints = {"scale": constraints.positive}
    support: constraints.Constraint = constraints.nonnegative
    has_rsample = True
    base_dist: LocationScale

    def __init__(self, base: LocationScale, validate_args: bool | None) -> None:
        super().__init__(base, AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The scale of the whole distribution."""
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        return gt.zeros_like(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        inside = self.base_dist.log_prob(self._checked(value)) + math.log(2)
        return gt.where(value >= 0, inside, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(self._checked(value)) - 1

    def icdf(self, prob: Tensor) -> Tensor:  # PyTorch's name
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
