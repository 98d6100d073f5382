"""The Gumbel distribution."""

import math

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import AffineTransform, ExpTransform
from gt.distributions.uniform import Uniform
from gt.distributions.utils import Value, broadcast_all, euler_constant, is_number

__all__ = ["Gumbel"]


class Gumbel(TransformedDistribution):
    """The Gumbel distribution of largest values: loc - scale log(-log(u)) of uniform u.

    Args:
        loc: the mode.
        scale: positive; broadcast with `loc`.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: constraints.Constraint = constraints.real
    _batched = {"loc": 0, "scale": 0}
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Value, scale: Value, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        info = gt.finfo(self.loc.dtype)
        ends = (info.tiny, 1 - info.eps)
        if is_number(loc, scale):
            base = Uniform(*ends, validate_args=validate_args)
        else:
            low, high = (gt.full_like(self.loc.detach(), end) for end in ends)
            base = Uniform(low, high, validate_args=validate_args)
        steps = [
            ExpTransform().inv,
            AffineTransform(0, -gt.ones_like(self.scale.detach())),
            ExpTransform().inv,
            AffineTransform(self.loc, -self.scale),
        ]
        super().__init__(base, steps, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        units = (self.loc - self._checked(value)) / self.scale
        return units - units.exp() - self.scale.log()

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale * (math.pi / math.sqrt(6))

    @property
    def variance(self) -> Tensor:
        return self.stddev.square()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)
