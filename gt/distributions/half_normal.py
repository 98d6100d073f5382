"""The half-normal distribution."""

import math

from gt import Tensor
from gt.distributions.half import Half
from gt.distributions.normal import Normal
from gt.distributions.utils import Value

__all__ = ["HalfNormal"]


class HalfNormal(Half):
    """|x| of normal values x with the mean 0.

    Args:
        scale: their standard deviation, positive.
        validate_args: whether arguments are checked.
    """

    base_dist: Normal

    def __init__(self, scale: Value, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (1 - 2 / math.pi)
