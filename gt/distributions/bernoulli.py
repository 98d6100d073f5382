"""The Bernoulli distribution."""

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Shape
from gt.distributions.exp_family import ExponentialFamily
from gt.distributions.probs_or_logits import ProbsOrLogits
from gt.distributions.utils import Value, batch_of, broadcast_all, one_of
from gt.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Bernoulli"]


class Bernoulli(ProbsOrLogits, ExponentialFamily):
    """One with a probability, else zero.

    Args:
        probs: the probability of one.
        logits: its log-odds, in place of `probs`.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: both of `probs` and `logits`, or none.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: constraints.Constraint = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Value | None = None,
        logits: Value | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name = one_of(probs, logits)
        value = logits if probs is None else probs
        assert value is not None, (probs, logits)
        (parameter,) = broadcast_all(value)
        vars(self)[name] = parameter
        super().__init__(batch_of(parameter, value), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        likelier = (self.probs >= 0.5).to(self.probs.dtype)
        return likelier.masked_fill(self.probs == 0.5, float("nan"))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with gt.no_grad():
            return gt.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._checked(value))
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._along(gt.arange(2, dtype=self._param.dtype), expand)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (gt.logit(self.probs),)

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        return natural_params[0].exp().log1p()
