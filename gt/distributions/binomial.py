"""The binomial distribution."""

import gt
from gt import Tensor
from gt.composite.counts import binomial
from gt.distributions import constraints
from gt.distributions.distribution import Shape
from gt.distributions.probs_or_logits import ProbsOrLogits
from gt.distributions.utils import Value, broadcast_all, one_of
from gt.errors import NotSupported
from gt.nn.functional import softplus

__all__ = ["Binomial"]


class Binomial(ProbsOrLogits):
    """Number of successes in a number of trials.

    Args:
        total_count: number of trials; broadcast with the other parameter.
        probs: the probability of success.
        logits: its log-odds, in place of `probs`.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: both of `probs` and `logits`, or none.
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    _batched = {"total_count": 0, "probs": 0, "logits": 0}
    total_count: Tensor

    def __init__(
        self,
        total_count: Value = 1,
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

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        """0, 1, ... total_count."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return gt.minimum(((self.total_count + 1) * self.probs).floor(), self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with gt.no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        n, value = self.total_count, self._checked(value)
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        return ways + value * self.logits - n * softplus(self.logits)

    def entropy(self) -> Tensor:
        log_prob = self.log_prob(self._counts("entropy", False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._counts("enumerate_support", expand)

    def _counts(self, method: str, expand: bool) -> Tensor:
        counts = self.total_count.detach()
        least, most = gt.stack([counts.min(), counts.max()]).numpy()
        if least != most:
            raise NotSupported(f"Inhomogeneous total count not supported by `{method}`.")
        return self._along(gt.arange(1 + int(most), dtype=self._param.dtype), expand)
