"""The Kumaraswamy distribution."""

import math

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import AffineTransform, PowerTransform
from gt.distributions.uniform import Uniform
from gt.distributions.utils import Value, broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


class Kumaraswamy(TransformedDistribution):
    """The Kumaraswamy distribution of [0, 1]: (1 - u ** (1 / b)) ** (1 / a) of uniform u.

    Args:
        concentration1: a, positive.
        concentration0: b, positive; broadcast with the first.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support: constraints.Constraint = constraints.unit_interval
    has_rsample = True
    _batched = {"concentration1": 0, "concentration0": 0}
    concentration1: Tensor
    concentration0: Tensor

    def __init__(
        self, concentration1: Value, concentration0: Value, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        zeros = gt.zeros_like(self.concentration0.detach())
        base = Uniform(zeros, zeros + 1, validate_args=validate_args)
        steps = [
            PowerTransform(1 / self.concentration0),
            AffineTransform(1.0, -1.0),
            PowerTransform(1 / self.concentration1),
        ]
        super().__init__(base, steps, validate_args=validate_args)

    def _moment(self, power: int) -> Tensor:
        """The mean of x ** power: b B(1 + power / a, b)."""
        a, b = 1 + power / self.concentration1, self.concentration0
        return b * (a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        logarithm = (-b).log1p() / b - (-a * b).log1p()
        return gt.where((a < 1) | (b < 1), math.nan, logarithm).exp()

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean.square()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + euler_constant
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - a.log() - b.log()
