"""The continuous Bernoulli distribution."""

import math

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Shape
from gt.distributions.exp_family import ExponentialFamily
from gt.distributions.probs_or_logits import ProbsOrLogits
from gt.distributions.utils import (
    Value,
    batch_of,
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    one_of,
)
from gt.errors import InvalidValue
from gt.nn.functional import binary_cross_entropy_with_logits

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """Values of [0, 1] with the density C p**x (1 - p)**(1 - x) (Loaiza-Ganem, Cunningham, 2019).

    Args:
        probs: p, which is not the mean.
        logits: its log-odds, in place of `probs`.
        lims: between these p the formulas, which divide by 1 - 2 p, are replaced by their series.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: both of `probs` and `logits`, or none.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: constraints.Constraint = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Value | None = None,
        logits: Value | None = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        name = one_of(probs, logits)
        value = logits if probs is None else probs
        assert value is not None, (probs, logits)
        (parameter,) = broadcast_all(value)
        if name == "probs":
            if validate_args is not None and not constraints.unit_interval.check(parameter).all():
                raise InvalidValue("The parameter probs has invalid values")
            parameter = clamp_probs(parameter)
        vars(self)[name] = parameter
        self._lims = lims
        super().__init__(batch_of(parameter, value), validate_args=validate_args)

    def _copy_rest(self, new: "ContinuousBernoulli") -> None:
        new._lims = self._lims

    @lazy_property
    def probs(self) -> Tensor:
        """p, neither 0 nor 1."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _is_apart(self) -> Tensor:
        """True where p is far enough from a half for the plain formula."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _apart(self) -> Tensor:
        """p, and another number where it is near a half."""
        return gt.where(self._is_apart(), self.probs, self._lims[0])

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of C."""
        p = self._apart()
        odds = ((-p).log1p() - p.log()).abs().log()
        near = math.log(2.0) + self._even(4 / 3, 104 / 45)
        return gt.where(self._is_apart(), odds - (1 - 2 * p).abs().log(), near)

    def _even(self, first: float, second: float) -> Tensor:
        """first d + second d**2 of the square d of p's distance from a half."""
        square = (self.probs - 0.5).square()
        return (first + second * square) * square

    @property
    def mean(self) -> Tensor:
        p, distance = self._apart(), self.probs - 0.5
        far = p / (2 * p - 1) + 1 / ((-p).log1p() - p.log())
        near = 0.5 + (1 / 3 + 16 / 45 * distance.square()) * distance
        return gt.where(self._is_apart(), far, near)

    @property
    def variance(self) -> Tensor:
        p = self._apart()
        far = p * (p - 1) / (1 - 2 * p).square() + 1 / ((-p).log1p() - p.log()).square()
        return gt.where(self._is_apart(), far, 1 / 12 - self._even(1 / 15, -128 / 945))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(gt.rand(shape, dtype=self.probs.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._checked(value))
        coin = -binary_cross_entropy_with_logits(logits, value, reduction="none")
        return coin + self._cont_bern_log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        p, value = self._apart(), self._checked(value)
        far = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        inside = gt.where(self._is_apart(), far, value)
        return gt.where(value <= 0, 0.0, gt.where(value >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._apart()
        rest = (-p).log1p()
        far = ((value * (2 * p - 1) - p).log1p() - rest) / (p.log() - rest)
        return gt.where(self._is_apart(), far, value)

    def entropy(self) -> Tensor:
        rest = (-self.probs).log1p()
        return self.mean * (rest - self.probs.log()) - self._cont_bern_log_norm() - rest

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        (x,) = natural_params
        low, high = (limit - 0.5 for limit in self._lims)
        is_apart = (x <= low) | (x > high)
        apart = gt.where(is_apart, x, low)
        far = apart.expm1().abs().log() - apart.abs().log()
        return gt.where(is_apart, far, 0.5 * x + x.square() / 24 - x**4 / 2880)
