"""The Cauchy distribution."""

import math

import gt
from gt import Tensor
from gt.distributions.distribution import Shape
from gt.distributions.location_scale import LocationScale

__all__ = ["Cauchy"]


class Cauchy(LocationScale):
    """The Cauchy (Lorentz) distribution, which has no mean.

    Args:
        loc: the median.
        scale: half of the width at half of the height, positive; broadcast with `loc`.
        validate_args: whether arguments are checked.
    """

    @property
    def mean(self) -> Tensor:
        return gt.full_like(self.loc.detach(), math.nan)

    @property
    def variance(self) -> Tensor:
        return gt.full_like(self.loc.detach(), math.inf)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        share = gt.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + ((share - 0.5) * math.pi).tan() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        units = (self._checked(value) - self.loc) / self.scale
        return -units.square().log1p() - self.scale.log() - math.log(math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        return ((self._checked(value) - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + (math.pi * (value - 0.5)).tan() * self.scale

    def entropy(self) -> Tensor:
        return self.scale.log() + math.log(4 * math.pi)
