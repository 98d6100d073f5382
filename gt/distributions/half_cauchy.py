"""The half-Cauchy distribution."""

import math

import gt
from gt import Tensor
from gt.distributions.cauchy import Cauchy
from gt.distributions.half import Half
from gt.distributions.utils import Value

__all__ = ["HalfCauchy"]


class HalfCauchy(Half):
    """|x| of Cauchy distributed values x around 0.

    Args:
        scale: their scale, positive.
        validate_args: whether arguments are checked.
    """

    base_dist: Cauchy

    def __init__(self, scale: Value, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        return gt.full_like(self.scale.detach(), math.inf)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def log_prob(self, value: Tensor) -> Tensor:
        return super().log_prob(gt.as_tensor(value, dtype=self.scale.dtype))
