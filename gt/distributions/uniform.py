"""The uniform distribution of an interval."""

from collections.abc import Mapping

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Distribution, Shape
from gt.distributions.utils import Value, batch_of, broadcast_all

__all__ = ["Uniform"]


class Uniform(Distribution):
    """The uniform distribution of [low, high).

    Args:
        low: the lower end.
        high: the upper end, above `low`; broadcast with it.
        validate_args: whether arguments are checked.
    """

    has_rsample = True
    _batched = {"low": 0, "high": 0}
    low: Tensor
    high: Tensor

    def __init__(self, low: Value, high: Value, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(batch_of(self.low, low, high), validate_args=validate_args)

    @property
    def arg_constraints(self) -> Mapping[str, constraints.Constraint]:
        return {
            "low": constraints.less_than(self.high),
            "high": constraints.greater_than(self.low),
        }

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """[low, high]."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return self.high * float("nan")

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        share = gt.rand(self._extended_shape(sample_shape), dtype=self.low.dtype)
        return self.low + share * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        is_inside = (self._checked(value) >= self.low) & (value < self.high)
        return is_inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        share = (self._checked(value) - self.low) / (self.high - self.low)
        return share.clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return self.low + value * (self.high - self.low)

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()
