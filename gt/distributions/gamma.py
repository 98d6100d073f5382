"""The gamma distribution."""

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Shape
from gt.distributions.exp_family import ExponentialFamily
from gt.distributions.gamma_draws import standard_gamma
from gt.distributions.operators import gammainc
from gt.distributions.utils import Value, batch_of, broadcast_all
from gt.tensors.draws import Generator

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """The gamma distribution.

    Args:
        concentration: the shape, positive.
        rate: 1 / scale, positive; broadcast with `concentration`.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {
        "concentration": constraints.positive,
        "rate": constraints.positive,
    }
    support: constraints.Constraint = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    _batched = {"concentration": 0, "rate": 0}
    concentration: Tensor
    rate: Tensor

    def __init__(
        self, concentration: Value, rate: Value, validate_args: bool | None = None
    ) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        batch = batch_of(self.concentration, concentration, rate)
        super().__init__(batch, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def sample(self, sample_shape: Shape = (), *, generator: Generator | None = None) -> Tensor:
        with gt.no_grad():
            return self.rsample(sample_shape, generator=generator)

    def rsample(self, sample_shape: Shape = (), generator: Generator | None = None) -> Tensor:
        shape = self._extended_shape(sample_shape)
        value = standard_gamma(self.concentration.expand(shape), generator) / self.rate
        tiny = gt.finfo(value.dtype).tiny  # keeps the gradient, unlike a constant limit
        return value + (value.detach().clamp(min=tiny) - value.detach())

    def log_prob(self, value: Tensor) -> Tensor:
        a, value = self.concentration, gt.as_tensor(value, dtype=self.rate.dtype)
        logarithms = gt.xlogy(a, self.rate) + gt.xlogy(a - 1, self._checked(value))
        return logarithms - self.rate * value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        return gammainc(self.concentration, self.rate * self._checked(value))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        a, rate = natural_params[0] + 1, -natural_params[1]
        return a.lgamma() - a * rate.log()
