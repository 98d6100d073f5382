"""The log-normal distribution."""

from gt import Tensor
from gt.distributions import constraints
from gt.distributions.normal import Normal
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import ExpTransform
from gt.distributions.utils import Value

__all__ = ["LogNormal"]


class LogNormal(TransformedDistribution):
    """Exponentials of normal values.

    Args:
        loc: the mean of the logarithm.
        scale: its standard deviation, positive; broadcast with `loc`.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: constraints.Constraint = constraints.positive
    has_rsample = True
    base_dist: Normal

    def __init__(self, loc: Value, scale: Value, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale.square()
        return square.expm1() * (2 * self.loc + square).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc
