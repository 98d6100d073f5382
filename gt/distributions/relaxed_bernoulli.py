"""The relaxed Bernoulli distribution, and that of its logits."""

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Shape
from gt.distributions.probs_or_logits import ProbsOrLogits
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import SigmoidTransform
from gt.distributions.utils import (
    Value,
    batch_of,
    broadcast_all,
    one_of,
    probs_to_logits,
)

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(ProbsOrLogits):
    """Log-odds of a relaxed coin (Maddison and others, 2017): logistic noise over a temperature.

    Args:
        temperature: a tensor, positive.
        probs: the probability of one.
        logits: its log-odds, in place of `probs`.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: both of `probs` and `logits`, or none.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: constraints.Constraint = constraints.real
    temperature: Tensor

    def __init__(
        self,
        temperature: Tensor,
        probs: Value | None = None,
        logits: Value | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        name = one_of(probs, logits)
        value = logits if probs is None else probs
        assert value is not None, (probs, logits)
        (parameter,) = broadcast_all(value)
        vars(self)[name] = parameter
        super().__init__(batch_of(parameter, value), validate_args=validate_args)

    def _copy_rest(self, new: "LogitRelaxedBernoulli") -> None:
        new.temperature = self.temperature

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        share = gt.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype)
        noise, logits = (probs_to_logits(p, is_binary=True) for p in (share, self.probs))
        return (noise + logits) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._checked(value))
        difference = logits - value * self.temperature
        return self.temperature.log() + difference - 2 * difference.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """A relaxed coin between 0 and 1, near them for small temperatures.

    Args:
        temperature: a tensor, positive.
        probs: the probability of one.
        logits: its log-odds, in place of `probs`.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: both of `probs` and `logits`, or none.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: constraints.Constraint = constraints.unit_interval
    has_rsample = True
    base_dist: LogitRelaxedBernoulli

    def __init__(
        self,
        temperature: Tensor,
        probs: Value | None = None,
        logits: Value | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Log-odds."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self.base_dist.probs
