"""The Poisson distribution."""

import gt
from gt import Tensor
from gt.composite.counts import poisson
from gt.distributions import constraints
from gt.distributions.distribution import Shape
from gt.distributions.exp_family import ExponentialFamily
from gt.distributions.utils import Value, batch_of, broadcast_all

__all__ = ["Poisson"]


class Poisson(ExponentialFamily):
    """The Poisson distribution of counts.

    Args:
        rate: the mean, not negative.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support: constraints.Constraint = constraints.nonnegative_integer
    _batched = {"rate": 0}
    rate: Tensor

    def __init__(self, rate: Value, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(batch_of(self.rate, rate), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with gt.no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        rate, value = broadcast_all(self.rate, self._checked(value))
        return gt.xlogy(value, rate) - rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return natural_params[0].exp()
