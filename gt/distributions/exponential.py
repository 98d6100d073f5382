"""The exponential distribution."""

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Shape
from gt.distributions.exp_family import ExponentialFamily
from gt.distributions.utils import Value, batch_of, broadcast_all

__all__ = ["Exponential"]


class Exponential(ExponentialFamily):
    """The exponential distribution.

    Args:
        rate: 1 / mean, positive.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"rate": constraints.positive}
    support: constraints.Constraint = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    _batched = {"rate": 0}
    rate: Tensor

    def __init__(self, rate: Value, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(batch_of(self.rate, rate), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return gt.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return self.rate ** (-2)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        share = gt.rand(self._extended_shape(sample_shape), dtype=self.rate.dtype)
        return -(-share).log1p() / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * self._checked(value)

    def cdf(self, value: Tensor) -> Tensor:
        return 1 - (-self.rate * self._checked(value)).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return -(-natural_params[0]).log()
