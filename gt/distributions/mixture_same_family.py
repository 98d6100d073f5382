"""Mixtures of distributions of one class."""

import gt
from gt import Tensor
from gt.distributions import constraints
from gt.distributions.categorical import Categorical
from gt.distributions.distribution import Distribution, Shape
from gt.errors import InvalidValue

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A sample of one of k components, which a categorical distribution chooses.

    Args:
        mixture_distribution: the weights of the k components.
        component_distribution: the components along its last batch dimension.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: an argument is no (categorical) distribution, or shapes do not fit.
    """

    arg_constraints = {}
    _batched = {"_mixture_distribution": 0}
    _mixture_distribution: Categorical
    _component_distribution: Distribution

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        _check_kinds(mixture_distribution, component_distribution)
        batch = component_distribution.batch_shape[:-1]
        weights = mixture_distribution.batch_shape
        for a, b in zip(reversed(weights), reversed(batch), strict=False):
            if a != b and 1 not in {a, b}:
                raise InvalidValue(
                    f"`mixture_distribution.batch_shape` ({weights}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch})"
                )
        k, have = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if k != have:
            raise InvalidValue(
                f"`mixture_distribution component` ({k}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({have})"
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        event = component_distribution.event_shape
        super().__init__(batch, event, validate_args=validate_args)

    def _expand_parameters(self, new: "MixtureSameFamily", batch: gt.Size) -> None:
        k = self._component_distribution.batch_shape[-1]
        new._mixture_distribution = self._mixture_distribution.expand(batch)
        new._component_distribution = self._component_distribution.expand((*batch, k))

    @constraints.dependent_property
    def support(self) -> constraints.Constraint:
        """The support of the components."""
        base = self._component_distribution.support
        assert base is not None, self._component_distribution
        return constraints.MixtureSameFamilyConstraint(base)

    @property
    def mixture_distribution(self) -> Categorical:
        """The weights."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    @property
    def _dim(self) -> int:
        """The components' dimension, from the right."""
        return -1 - len(self._event_shape)

    def _weights(self) -> Tensor:
        """Weights of the components, with dimensions of size 1 for the event: [..., k, 1 ...]."""
        probs = self._mixture_distribution.probs
        return probs.reshape((*probs.shape, *[1] * len(self._event_shape)))

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self._component_distribution.mean).sum(self._dim)

    @property
    def variance(self) -> Tensor:
        deviation = self._component_distribution.mean - self.mean.unsqueeze(self._dim)
        spread = self._component_distribution.variance + deviation.square()
        return (self._weights() * spread).sum(self._dim)

    def cdf(self, x: Tensor) -> Tensor:  # PyTorch's name
        shares = self._component_distribution.cdf(x.unsqueeze(self._dim))
        return (shares * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:  # PyTorch's name
        parts = self._component_distribution.log_prob(self._checked(x).unsqueeze(self._dim))
        return (parts + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with gt.no_grad():
            parts = self._component_distribution.sample(sample_shape)  # [..., k, event...]
            chosen = self._mixture_distribution.expand(self._batch_shape).sample(sample_shape)
            ones = [1] * (1 + len(self._event_shape))
            shape = (*chosen.shape, 1, *self._event_shape)
            index = chosen.reshape((*chosen.shape, *ones)).expand(shape)
            return parts.gather(self._dim + parts.ndim, index).squeeze(self._dim)

    def __repr__(self) -> str:
        parts = f"{self._mixture_distribution},\n  {self._component_distribution}"
        return f"MixtureSameFamily(\n  {parts})"


def _check_kinds(mixture: object, component: object) -> None:
    """PyTorch's errors."""
    if not isinstance(mixture, Categorical):
        raise InvalidValue(
            " The Mixture distribution needs to be an  instance of torch.distributions.Categorical"
        )
    if not isinstance(component, Distribution):
        raise InvalidValue(
            "The Component distribution needs to be an instance of torch.distributions.Distribution"
        )
