"""The geometric distribution."""

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Shape
from gt.distributions.probs_or_logits import ProbsOrLogits
from gt.distributions.utils import Value, batch_of, broadcast_all, one_of
from gt.errors import InvalidValue
from gt.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Geometric"]


class Geometric(ProbsOrLogits):
    """Number of failures before the first success: 0, 1, 2, ...

    Args:
        probs: the probability of success, above 0.
        logits: its log-odds, in place of `probs`.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: both of `probs` and `logits`, or none.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: constraints.Constraint = constraints.nonnegative_integer

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
        if self._validate_args and name == "probs" and not (parameter > 0).all():
            invalid = parameter.detach()[~(parameter > 0)]
            raise InvalidValue(
                f"Expected parameter probs ({type(parameter).__name__} "
                f"of shape {tuple(parameter.shape)}) of distribution {self!r} to be positive "
                f"but found invalid values:\n{invalid}"
            )

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return gt.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with gt.no_grad():
            share = gt.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype)
            return ((-share).log1p() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        value, probs = broadcast_all(self._checked(value), self.probs)
        failing = gt.where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-failing).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        coin = binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return coin / self.probs
