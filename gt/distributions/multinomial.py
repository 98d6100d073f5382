"""The multinomial distribution."""

import math

import gt
from gt import Size, Tensor
from gt.distributions import constraints
from gt.distributions.binomial import Binomial
from gt.distributions.categorical import Categorical
from gt.distributions.distribution import Distribution, Shape
from gt.distributions.utils import broadcast_all
from gt.errors import NotSupported

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """Counts of each of k classes in `total_count` draws.

    Args:
        total_count: number of draws, one integer.
        probs: not negative, [..., k]; divided by their sum.
        logits: logarithms of probabilities up to a constant of each row, in place of `probs`.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: both of `probs` and `logits`, or none, or one without a dimension.
        NotSupported: a `total_count` that is no whole number.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _batched = {"_categorical": 0}
    total_count: int
    _categorical: Categorical

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotSupported("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def _copy_rest(self, new: "Multinomial") -> None:
        new.total_count = self.total_count

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        """Counts whose sum is `total_count` at most."""
        return constraints.multinomial(self.total_count)

    @property
    def logits(self) -> Tensor:
        """Logarithms of probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self._categorical.probs

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._categorical.param_shape

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        drawn = drawn.movedim(0, -1)  # [n, ...] -> [..., n]
        zeros = gt.zeros(self._extended_shape(sample_shape), dtype=drawn.dtype)
        counts = zeros.scatter_add(-1, drawn, gt.ones_like(drawn))
        return counts.to(self.probs.dtype)

    def entropy(self) -> Tensor:
        n = self.total_count
        counts = Binomial(n, self.probs, validate_args=False)
        support = counts.enumerate_support(expand=False)[1:]
        repeated = counts.log_prob(support).exp() * (support + 1).lgamma()
        draws = n * self._categorical.entropy() - math.lgamma(n + 1)
        return draws + repeated.sum((0, -1))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._checked(value))
        logits = gt.where((value == 0) & (logits == -math.inf), 0.0, logits)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return ways + (logits * value).sum(-1)
