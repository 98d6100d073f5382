"""The negative binomial distribution."""

import gt
from gt import Tensor
from gt.composite.counts import poisson
from gt.distributions import constraints
from gt.distributions.distribution import Shape
from gt.distributions.gamma import Gamma
from gt.distributions.probs_or_logits import ProbsOrLogits
from gt.distributions.utils import Value, broadcast_all, lazy_property, one_of
from gt.nn.functional import logsigmoid

__all__ = ["NegativeBinomial"]


class NegativeBinomial(ProbsOrLogits):
    """Number of successes before `total_count` failures.

    Args:
        total_count: not negative, whole or not; broadcast with the other parameter.
        probs: the probability of success, below 1.
        logits: its log-odds, in place of `probs`.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: both of `probs` and `logits`, or none.
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support: constraints.Constraint = constraints.nonnegative_integer
    _batched = {"total_count": 0, "probs": 0, "logits": 0}
    total_count: Tensor

    def __init__(
        self,
        total_count: Value,
        probs: Value | None = None,
        logits: Value | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name = one_of(probs, logits)
        value = logits if probs is None else probs
        assert value is not None, (probs, logits)
        count, parameter = broadcast_all(total_count, value)
        self.total_count, vars(self)[name] = count.to(parameter.dtype), parameter
        super().__init__(parameter.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    @lazy_property
    def _gamma(self) -> Gamma:
        """Distribution of the rates of the Poisson counts that the samples are."""
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with gt.no_grad():
            return poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        n, value = self.total_count, self._checked(value)
        powers = n * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        ways = (n + value).lgamma() - (1 + value).lgamma() - n.lgamma()
        return powers + ways.masked_fill(n + value == 0, 0.0)
