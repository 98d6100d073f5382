"""Student's t distribution."""  # noqa: N999 - PyTorch's name of the module

import math

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.chi2 import Chi2
from gt.distributions.distribution import Distribution, Shape
from gt.distributions.utils import Value, broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """Student's t distribution.

    Args:
        df: the degrees of freedom, positive.
        loc: the location; broadcast with the others.
        scale: the scale, positive.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support: constraints.Constraint = constraints.real
    has_rsample = True
    _batched = {"df": 0, "loc": 0, "scale": 0, "_chi2": 0}
    df: Tensor
    loc: Tensor
    scale: Tensor
    _chi2: Chi2

    def __init__(
        self,
        df: Value,
        loc: Value = 0.0,
        scale: Value = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df, validate_args=False)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return gt.where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        is_finite = self.df > 2
        df = gt.where(is_finite, self.df, 3.0)  # a number whose gradient is one
        rest = gt.where(self.df > 1, math.inf, gt.full_like(self.df.detach(), math.nan))
        return gt.where(is_finite, self.scale.square() * df / (df - 2), rest)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        unit = gt.randn(self._extended_shape(sample_shape), dtype=self.df.dtype)
        squares = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * unit * (squares / self.df).rsqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        units = (self._checked(value) - self.loc) / self.scale
        half = 0.5 * (self.df + 1)
        constant = self.scale.log() + 0.5 * self.df.log() + self._log_beta()
        return -half * (units.square() / self.df).log1p() - constant

    def _log_beta(self) -> Tensor:
        """log B(df / 2, 1 / 2)."""
        half = (0.5 * self.df).lgamma() - (0.5 * (self.df + 1)).lgamma()
        return half + 0.5 * math.log(math.pi)

    def entropy(self) -> Tensor:
        half = 0.5 * (self.df + 1)
        slopes = half * (half.digamma() - (0.5 * self.df).digamma())
        return self.scale.log() + slopes + 0.5 * self.df.log() + self._log_beta()
