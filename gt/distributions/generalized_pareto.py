"""The generalized Pareto distribution."""

import math

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Distribution, Shape
from gt.distributions.utils import Value, batch_of, broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """Excesses over a threshold: exponential for a concentration of 0, heavier tails above it.

    Args:
        loc: the threshold.
        scale: positive; broadcast with the others.
        concentration: of any sign.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    _batched = {"loc": 0, "scale": 0, "concentration": 0}
    loc: Tensor
    scale: Tensor
    concentration: Tensor

    def __init__(
        self,
        loc: Value,
        scale: Value,
        concentration: Value,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        batch = batch_of(self.loc, loc, scale, concentration)
        super().__init__(batch, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """From `loc` on, up to an end for a negative concentration."""
        c = self.concentration
        end = gt.where(c < 0, self.loc - self.scale / c, math.inf)
        return constraints.interval(self.loc, end)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(gt.rand(shape, dtype=self.loc.dtype))

    def _parts(self, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scaled distance above the threshold, mask of zero concentrations, and concentrations with
        1 there.
        """
        c = self.concentration
        is_zero = c.detach().abs() <= 1e-8
        units = (self._checked(value) - self.loc) / self.scale
        return units, is_zero, gt.where(is_zero, 1.0, c)

    def log_prob(self, value: Tensor) -> Tensor:
        units, is_zero, c = self._parts(value)
        power = 1 / c + gt.ones_like(units.detach())
        far = gt.where(power == 0, power, power * (c * units).log1p())
        return -self.scale.log() - gt.where(is_zero, units, far)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of a sample above `value`."""
        units, is_zero, c = self._parts(value)
        return gt.where(is_zero, -units, -(c * units).log1p() / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of `cdf`."""
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        is_zero = self.concentration.detach().abs() <= 1e-8
        c = gt.where(is_zero, 1.0, self.concentration)
        log_rest = (-value).log1p()
        far = self.loc + self.scale / c * (-c * log_rest).expm1()
        return gt.where(is_zero, self.loc - self.scale * log_rest, far)

    @property
    def mean(self) -> Tensor:
        is_finite = self.concentration < 1
        c = gt.where(is_finite, self.concentration, 0.5)
        return gt.where(is_finite, self.loc + self.scale / (1 - c), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        is_finite = self.concentration < 0.5
        c = gt.where(is_finite, self.concentration, 0.25)
        value = self.scale.square() / ((1 - c).square() * (1 - 2 * c))
        return gt.where(is_finite, value, math.nan)

    def entropy(self) -> Tensor:
        return (self.scale.log() + self.concentration + 1).expand(self._batch_shape)
