"""Base of distributions with a location and a scale."""

from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Distribution
from gt.distributions.utils import Value, batch_of, broadcast_all


class LocationScale(Distribution):
    """A distribution over real numbers with `loc` and `scale`.

    Args:
        loc: the location.
        scale: the scale, positive; broadcast with `loc`.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support: constraints.Constraint = constraints.real
    has_rsample = True
    _batched = {"loc": 0, "scale": 0}
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Value, scale: Value, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(batch_of(self.loc, loc, scale), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc
