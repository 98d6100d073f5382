"""The relaxed categorical distribution, and that of its logarithms."""

import gt
from gt import Size, Tensor
from gt.distributions import constraints
from gt.distributions.categorical import Categorical
from gt.distributions.distribution import Distribution, Shape
from gt.distributions.transformed_distribution import TransformedDistribution
from gt.distributions.transforms import ExpTransform
from gt.distributions.utils import broadcast_all, clamp_probs

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(Distribution):
    """Logarithms of a relaxed choice (Maddison and others, 2017; Jang and others, 2017).

    Args:
        temperature: a tensor, positive.
        probs: not negative, [..., k]; divided by their sum.
        logits: logarithms of probabilities up to a constant of each row, in place of `probs`.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: constraints.Constraint = constraints.real_vector
    has_rsample = True
    _batched = {"_categorical": 0}
    _categorical: Categorical
    temperature: Tensor

    def __init__(
        self,
        temperature: Tensor,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def _copy_rest(self, new: "ExpRelaxedCategorical") -> None:
        new.temperature = self.temperature

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._categorical.param_shape

    @property
    def logits(self) -> Tensor:
        """Logarithms of probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self._categorical.probs

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        share = gt.rand(self._extended_shape(sample_shape), dtype=self.logits.dtype)
        noise = -(-clamp_probs(share).log()).log()  # Gumbel's
        return ((self.logits + noise) / self.temperature).log_softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        k = self._event_shape[0]
        logits, value = broadcast_all(self.logits, self._checked(value))
        scale = gt.full_like(self.temperature.detach(), float(k)).lgamma()
        scale = scale + (k - 1) * self.temperature.log()
        return (logits - value * self.temperature).log_softmax(-1).sum(-1) + scale


class RelaxedOneHotCategorical(TransformedDistribution):
    """A relaxed choice: points of the simplex, near its corners for small temperatures.

    Args:
        temperature: a tensor, positive.
        probs: not negative, [..., k]; divided by their sum.
        logits: logarithms of probabilities up to a constant of each row, in place of `probs`.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: constraints.Constraint = constraints.simplex
    has_rsample = True
    base_dist: ExpRelaxedCategorical

    def __init__(
        self,
        temperature: Tensor,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Logarithms of probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self.base_dist.probs
