"""The Laplace distribution."""

import gt
from gt import Tensor
from gt.distributions.distribution import Shape
from gt.distributions.location_scale import LocationScale

__all__ = ["Laplace"]


class Laplace(LocationScale):
    """The Laplace distribution: exponential to both sides of `loc`.

    Args:
        loc: the mean.
        scale: the mean distance from it, positive; broadcast with `loc`.
        validate_args: whether arguments are checked.
    """

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.square()

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        dtype = self.loc.dtype
        share = gt.rand(self._extended_shape(sample_shape), dtype=dtype)  # [0, 1) -> (-1, 1)
        side = (2 * share - 1).clamp(min=gt.finfo(dtype).eps - 1)
        return self.loc - self.scale * side.sign() * (-side.abs()).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        distance = (self._checked(value) - self.loc).abs()
        return -distance / self.scale - (2 * self.scale).log()

    def cdf(self, value: Tensor) -> Tensor:
        deviation = self._checked(value) - self.loc
        return (1 - deviation.sign() * (-deviation.abs() / self.scale).expm1()) / 2

    def icdf(self, value: Tensor) -> Tensor:
        side = value - 0.5
        return self.loc - self.scale * side.sign() * (-2 * side.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()
