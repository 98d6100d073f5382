"""The normal distribution."""

import math

import gt
from gt import Tensor
from gt.distributions.distribution import Shape
from gt.distributions.exp_family import ExponentialFamily
from gt.distributions.location_scale import LocationScale

__all__ = ["Normal"]


class Normal(LocationScale, ExponentialFamily):
    """The normal distribution.

    Args:
        loc: the mean.
        scale: the standard deviation, positive; broadcast with `loc`.
        validate_args: whether arguments are checked.
    """

    _mean_carrier_measure = 0

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale.square()

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        unit = gt.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + unit * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        deviation = self._checked(value) - self.loc
        spread = 2 * self.scale.square()
        return -deviation.square() / spread - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        units = (self._checked(value) - self.loc) / self.scale
        return (1 + (units / math.sqrt(2)).erf()) / 2

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return self.scale.log() + 0.5 * (1 + math.log(2 * math.pi))

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        variance = self.scale.square()
        return self.loc / variance, -0.5 / variance

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        first, second = natural_params
        return -first.square() / (4 * second) + 0.5 * (-math.pi / second).log()
