"""The logistic normal distribution."""

from gt import Tensor
from gt.distributions import constraints
from gt.distributions.independent import Independent
from gt.distributions.normal import Normal
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import StickBreakingTransform
from gt.distributions.utils import Value

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """Points of the simplex [..., n + 1] that stick breaking makes of normal vectors [..., n].

    Args:
        loc: the means.
        scale: the standard deviations, positive; broadcast with `loc`.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: constraints.Constraint = constraints.simplex
    has_rsample = True
    base_dist: Independent[Normal]

    def __init__(self, loc: Value, scale: Value, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The means of the normal vectors."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """Their standard deviations."""
        return self.base_dist.base_dist.scale
