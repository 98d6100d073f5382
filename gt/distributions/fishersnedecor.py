"""Fisher and Snedecor's F distribution."""

import math

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Distribution, Shape
from gt.distributions.gamma import Gamma
from gt.distributions.utils import Value, batch_of, broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared values, each over its degrees of freedom.

    Args:
        df1: degrees of freedom of the numerator, positive.
        df2: degrees of freedom of the denominator; broadcast with the first.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support: constraints.Constraint = constraints.positive
    has_rsample = True
    _batched = {"df1": 0, "df2": 0, "_gamma1": 0, "_gamma2": 0}
    df1: Tensor
    df2: Tensor
    _gamma1: Gamma
    _gamma2: Gamma

    def __init__(self, df1: Value, df2: Value, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        super().__init__(batch_of(self.df1, df1, df2), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        df2 = gt.where(self.df2 <= 2, math.nan, self.df2)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        inside = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return gt.where(self.df1 <= 2, math.nan, inside)

    @property
    def variance(self) -> Tensor:
        df2 = gt.where(self.df2 <= 4, math.nan, self.df2)
        ratio = (self.df1 + df2 - 2) / (self.df1 * (df2 - 2).square() * (df2 - 4))
        return 2 * df2.square() * ratio

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        upper, lower = self._gamma1.rsample(sample_shape), self._gamma2.rsample(sample_shape)
        tiny = gt.finfo(lower.dtype).tiny
        return (upper / lower.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        value = self._checked(value)
        normalizer = a.lgamma() + b.lgamma() - (a + b).lgamma()
        powers = a * ratio.log() + (a - 1) * value.log()
        return powers - (a + b) * (ratio * value).log1p() - normalizer
