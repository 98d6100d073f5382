"""The Weibull distribution."""

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.exponential import Exponential
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import AffineTransform, PowerTransform
from gt.distributions.utils import Value, broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """The Weibull distribution: scale * e ** (1 / concentration) of exponential values e.

    Args:
        scale: positive.
        concentration: the shape, positive; broadcast with `scale`.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support: constraints.Constraint = constraints.positive
    _batched = {"scale": 0, "concentration": 0, "concentration_reciprocal": 0}
    scale: Tensor
    concentration: Tensor
    concentration_reciprocal: Tensor

    def __init__(
        self, scale: Value, concentration: Value, validate_args: bool | None = None
    ) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = 1 / self.concentration
        base = Exponential(gt.ones_like(self.scale.detach()), validate_args=validate_args)
        steps = [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)]
        super().__init__(base, steps, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * (1 + self.concentration_reciprocal).lgamma().exp()

    @property
    def mode(self) -> Tensor:
        power = self.concentration_reciprocal
        return self.scale * ((self.concentration - 1) / self.concentration) ** power

    @property
    def variance(self) -> Tensor:
        power = self.concentration_reciprocal
        square = (1 + 2 * power).lgamma().exp() - (2 * (1 + power).lgamma()).exp()
        return self.scale.square() * square

    def entropy(self) -> Tensor:
        power = self.concentration_reciprocal
        return euler_constant * (1 - power) + (self.scale * power).log() + 1
